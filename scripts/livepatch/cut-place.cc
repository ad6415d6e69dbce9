// SPDX-License-Identifier: GPL-2.0
// Where PLAIN is in the kernel, and whether it is what the kernel has.
#include <algorithm>
#include "cut.h"

using std::map, std::string, std::vector;

std::optional<uint64_t> File::address(const string &symbol) const
{
	if (auto it = external.find(symbol); it != external.end())
		return it->second;
	for (const Symbol &s : plain.symbols)
		if (s.name == symbol && s.type != STT_SECTION && s.section != SHN_UNDEF)
			if (auto it = base.find(s.section); it != base.end())
				return it->second + s.value;
	return {};
}

string File::function_at(size_t section, uint64_t offset) const
{
	for (const Symbol &s : plain.symbols)
		if (s.section == section && s.type == STT_FUNC && offset >= s.value &&
		    offset < s.value + s.size)
			return s.name;
	return plain.sections[section].name;
}

void File::place(const Kernel &kernel)
{
	// A section of code is where most of its functions say.
	for (size_t i = 1; i < plain.sections.size(); i++) {
		map<uint64_t, int> votes;
		for (const Symbol &s : plain.symbols)
			if (s.section == i && s.type == STT_FUNC && plain.sections[i].code())
				if (vector<uint64_t> at = kernel.addresses(s.name); at.size() == 1)
					votes[at[0] - s.value]++;
		if (!votes.empty())
			base[i] = std::ranges::max_element(votes, {}, [](auto &v) {
					  return v.second;
				  })->first;
	}
	if (base.empty())
		die("%s: the kernel has none of its functions", name.c_str());

	// What is found refers to more.
	std::set<size_t> done;
	for (size_t before = 0; before != base.size();) {
		before = base.size();
		for (auto [i, start] : map(base)) {
			// Those of CPUs are below 2 GiB.
			if (!done.insert(i).second || plain.sections[i].type == SHT_NOBITS ||
			    start < 0x80000000)
				continue;
			compare(i, kernel);
			follow(i, kernel);
		}
	}
}

void File::compare(size_t index, const Kernel &kernel) const
{
	const Section &section = plain.sections[index];
	std::span<const unsigned char> there = kernel.at(base.at(index), section.bytes.size());
	if (there.size() != section.bytes.size())
		die("%s: the kernel has no such section: %s", name.c_str(), section.name.c_str());
	vector<unsigned char> ours = section.bytes, theirs(there.begin(), there.end());
	for (const Relocation &r : section.relocations)
		for (size_t b = r.offset; b < r.offset + r.width(); b++)
			ours[b] = theirs[b] = 0;
	auto [our, their] = std::ranges::mismatch(ours, theirs);
	if (our != ours.end() && section.code())
		die("%s: %s is not what the kernel has; is this another compiler, "
		    "source or configuration?",
		    name.c_str(), function_at(index, our - ours.begin()).c_str());
}

// Where the kernel's section leads is where that is which ours refers to.
void File::follow(size_t index, const Kernel &kernel)
{
	const Section &section = plain.sections[index];
	uint64_t start = base.at(index);
	std::span<const unsigned char> there = kernel.at(start, section.bytes.size());
	for (const Relocation &r : section.relocations) {
		if (r.width() < 4)
			continue;
		uint32_t value;
		memcpy(&value, &there[r.offset], sizeof value);
		// The kernel is in the last 2 GiB.
		uint64_t target =
			(int32_t)((r.relative() ? start + r.offset : 0) + value - r.addend);
		const Symbol &s = plain.symbols[r.symbol];
		uint64_t *known;
		// Another file may have a stronger one.
		if (s.section == SHN_UNDEF || s.bind == STB_WEAK)
			known = &external.try_emplace(s.name, target).first->second;
		else if (s.section < SHN_LORESERVE && !plain.sections[s.section].merged())
			known = &base.try_emplace(s.section, target -= s.value).first->second;
		else
			continue;
		if (!same_address(*known, target))
			die("%s: %s refers to another %s than the kernel's does", name.c_str(),
			    function_at(index, r.offset).c_str(),
			    s.name.empty() ? plain.sections[s.section].name.c_str()
					   : s.name.c_str());
	}
}
