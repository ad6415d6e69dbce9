// SPDX-License-Identifier: GPL-2.0
// Where PLAIN is in the kernel, and whether it is what the kernel has.
#include <algorithm>
#include "cut.h"

using std::map, std::string, std::vector;

std::optional<uint64_t> File::address(const string &symbol) const
{
	auto it = external.find(symbol);
	return it == external.end() ? std::nullopt : std::optional(it->second);
}

std::optional<uint64_t> File::address(size_t symbol) const
{
	const Symbol &s = plain.symbol(symbol);
	// Another file may have a stronger one.
	if (s.bind == STB_WEAK)
		return address(s.name);
	auto it = base.find(s.section);
	return it == base.end() ? std::nullopt : std::optional(it->second + s.value);
}

std::optional<size_t> File::theirs(size_t symbol) const
{
	const Symbol &s = patched.symbol(symbol);
	auto ours = patched.variables.find(group(s.name));
	if (ours == patched.variables.end())
		return plain.find(s.name);
	auto theirs = plain.variables.find(ours->first);
	if (is_own(unnumbered(s.name)) || theirs == plain.variables.end())
		return {};
	if (ours->second.size() != theirs->second.size())
		die("%s: %s is one of %zu static variables of functions, and the kernel has %zu of "
		    "that name: which is new?",
		    name.c_str(), s.name.c_str(), ours->second.size(), theirs->second.size());
	if (ours->second.size() > 1)
		die("%s: which %s of the kernel's is it?", name.c_str(), s.name.c_str());
	const Symbol &their = plain.symbol(theirs->second[0]);
	if (s.size != their.size || s.type != their.type)
		die("%s: %s is of another size than the kernel's", name.c_str(), s.name.c_str());
	return theirs->second[0];
}

string File::name_at(size_t section, uint64_t offset) const
{
	for (const Symbol &s : plain.object.symbols)
		if (s.section == section && offset >= s.value && offset < s.value + s.size)
			return s.name;
	return plain.object.sections[section].name;
}

void File::place(const Kernel &kernel)
{
	// A section of code is where most of its functions say.
	for (size_t i = 1; i < plain.object.sections.size(); i++) {
		map<uint64_t, int> votes;
		for (const Symbol &s : plain.object.symbols)
			if (s.section == i && s.type == STT_FUNC && plain.object.sections[i].code())
				if (vector<uint64_t> at = kernel.addresses(s.name); at.size() == 1)
					votes[at[0] - s.value]++;
		if (!votes.empty())
			base[i] = std::ranges::max_element(votes, {}, [](auto &v) {
					  return v.second;
				  })->first;
	}
	if (base.empty())
		die("%s: the kernel has none of its functions", name.c_str());

	find_alternatives(kernel);

	// What is found refers to more.
	std::set<size_t> done;
	for (size_t before = 0; before != base.size();) {
		before = base.size();
		for (auto [i, start] : map(base)) {
			if (!done.insert(i).second || plain.section(i).type == SHT_NOBITS)
				continue;
			compare(i, kernel);
			follow(i, kernel);
		}
	}
}

// Nothing refers to the alternatives. Their first entry is for code that was found.
void File::find_alternatives(const Kernel &kernel)
{
	for (size_t i = 1; i < plain.object.sections.size(); i++) {
		const Section &section = plain.section(i);
		if (section.name != ALTERNATIVES || section.relocations.empty())
			continue;
		const Relocation &first = section.relocations[0];
		const Symbol &code = plain.symbol(first.symbol);
		auto at = base.find(code.section);
		std::optional<Kernel::Contents> all = kernel.contents(ALTERNATIVES);
		if (at == base.end() || !all || first.offset || !first.relative())
			die("%s: its alternatives are of a kind that is not known here",
			    name.c_str());
		for (size_t there = 0; there + section.bytes.size() <= all->bytes.size(); there++) {
			uint32_t value;
			memcpy(&value, &all->bytes[there], sizeof value);
			if (same_address(all->address + there + value,
					 at->second + code.value + first.addend)) {
				base[i] = all->address + there;
				break;
			}
		}
		if (!base.contains(i))
			die("%s: the kernel has none of its alternatives", name.c_str());
	}
}

void File::compare(size_t index, const Kernel &kernel) const
{
	const Section &section = plain.object.sections[index];
	std::span<const unsigned char> there = kernel.at(base.at(index), section.bytes.size());
	if (there.size() != section.bytes.size())
		die("%s: the kernel has no such section: %s", name.c_str(), section.name.c_str());
	vector<unsigned char> ours = section.bytes, theirs(there.begin(), there.end());
	for (const Relocation &r : section.relocations)
		for (size_t b = r.offset; b < r.offset + r.width(); b++)
			ours[b] = theirs[b] = 0;
	auto [our, their] = std::ranges::mismatch(ours, theirs);
	if (our != ours.end() && section.name != BTF_IDS)
		die("%s: %s is not what the kernel has; is this another compiler, "
		    "source or configuration?",
		    name.c_str(), name_at(index, our - ours.begin()).c_str());
}

// What the link merges has no known place: @r leads to @target, which must have the same contents.
void File::compare_merged(size_t index, const Relocation &r, uint64_t target,
			  const Kernel &kernel) const
{
	const Section &section = plain.section(index);
	string ours = plain.constant(section, r);
	std::span<const unsigned char> there =
		kernel.at(target + Code::bias(section, r), ours.size());
	if (!std::ranges::equal(there, ours, {}, {}, [](char c) { return (unsigned char)c; }))
		die("%s: %s refers to %s, and the kernel's does not", name.c_str(),
		    name_at(index, r.offset).c_str(),
		    plain.section(plain.symbol(r.symbol).section).flags & SHF_STRINGS
			    ? ('"' + ours.substr(0, ours.size() - 1) + '"').c_str()
			    : "another constant");
}

// Where the kernel's section leads is where that is which ours refers to.
void File::follow(size_t index, const Kernel &kernel)
{
	const Section &section = plain.object.sections[index];
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
		const Symbol &s = plain.symbol(r.symbol);
		uint64_t *known;
		// Another file may have a stronger one.
		if (s.section == SHN_UNDEF || s.bind == STB_WEAK)
			known = &external.try_emplace(s.name, target).first->second;
		else if (s.section >= SHN_LORESERVE)
			continue;
		else if (plain.section(s.section).merged()) {
			compare_merged(index, r, target + r.addend, kernel);
			continue;
		} else
			known = &base.try_emplace(s.section, target -= s.value).first->second;
		if (!same_address(*known, target))
			die("%s: %s refers to another %s than the kernel's does", name.c_str(),
			    name_at(index, r.offset).c_str(),
			    s.name.empty() ? plain.object.sections[s.section].name.c_str()
					   : s.name.c_str());
	}
}
