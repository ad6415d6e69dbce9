// SPDX-License-Identifier: GPL-2.0
// Finds the sections of PLAIN in the kernel, and checks that the kernel has the same contents
// there.
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
	// A symbol of another file may override a weak one.
	if (s.bind == STB_WEAK)
		return address(s.name);
	auto it = base.find(s.section);
	return it == base.end() ? std::nullopt : std::optional(it->second + s.value);
}

std::optional<size_t> File::counterpart(size_t symbol) const
{
	const Symbol &s = patched.symbol(symbol);
	auto ours = patched.variables.find(group(s.name));
	if (ours == patched.variables.end())
		return plain.find(s.name);
	auto theirs = plain.variables.find(ours->first);
	if (is_private(unnumbered(s.name)) || theirs == plain.variables.end())
		return {};
	if (ours->second.size() != theirs->second.size())
		die("%s: %s cannot be matched: functions of the patched source have %zu static "
		    "variables of this name, and the kernel has %zu; rename the new ones",
		    name.c_str(), s.name.c_str(), ours->second.size(), theirs->second.size());
	if (ours->second.size() > 1)
		die("%s: %s cannot be matched: the kernel has %zu static variables of this name",
		    name.c_str(), s.name.c_str(), theirs->second.size());
	const Symbol &their = plain.symbol(theirs->second[0]);
	if (s.size != their.size || s.type != their.type)
		die("%s: %s does not have the size and type of the kernel's variable", name.c_str(),
		    s.name.c_str());
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
	// Each function whose name occurs once in the kernel gives the address of its section. A
	// symbol of another file may have that name, so take the address that most functions give.
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
		die("%s: the kernel's symbols have none of its functions", name.c_str());

	find_alternatives(kernel);

	// The references of each section that is found give the addresses of further sections.
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

// No relocation refers to .altinstructions, so search the kernel's section for the first entry of
// ours, which is for code at a known address.
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
			die("%s: section %s has an unknown format", name.c_str(),
			    section.name.c_str());
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
			die("%s: section %s is not in the kernel", name.c_str(),
			    section.name.c_str());
	}
}

void File::compare(size_t index, const Kernel &kernel) const
{
	const Section &section = plain.object.sections[index];
	std::span<const unsigned char> there = kernel.at(base.at(index), section.bytes.size());
	if (there.size() != section.bytes.size())
		die("%s: section %s is not in the kernel", name.c_str(), section.name.c_str());
	vector<unsigned char> ours = section.bytes, theirs(there.begin(), there.end());
	for (const Relocation &r : section.relocations)
		for (size_t b = r.offset; b < r.offset + r.width(); b++)
			ours[b] = theirs[b] = 0;
	auto [our, their] = std::ranges::mismatch(ours, theirs);
	if (our != ours.end() && section.name != BTF_IDS)
		die("%s: %s is not the same as in the kernel; compile with the kernel's compiler, "
		    "source and configuration",
		    name.c_str(), name_at(index, our - ours.begin()).c_str());
}

// The folder and the name of the file at @path: "events/core.c".
static string last_two(const string &path)
{
	size_t name = path.rfind('/');
	size_t folder = name && name != string::npos ? path.rfind('/', name - 1) : string::npos;
	return path.substr(folder == string::npos ? 0 : folder + 1);
}

// The string at @address with its terminator, as Code::constant() returns it.
static string string_at(const Kernel &kernel, uint64_t address)
{
	string text;
	for (;; address++) {
		std::span<const unsigned char> byte = kernel.at(address, 1);
		if (byte.empty())
			return text;
		text += char(byte[0]);
		if (!byte[0])
			return text;
	}
}

// UBSAN's data has the path of the source file, and the kernel was built in another folder.
bool File::is_ubsan_path(const string &ours, const string &theirs) const
{
	for (const Section &section : stock.object.sections)
		for (const Relocation &r : section.relocations)
			if (is_ubsan(section) && stock.defines(r.symbol) &&
			    stock.section(stock.symbol(r.symbol).section).merged() &&
			    last_two(stock.constant(section, r)) == last_two(ours))
				return last_two(theirs) == last_two(ours);
	return false;
}

// The linker merges equal constants, so a merged section has no single address in the kernel. Only
// check that the kernel has the same constant at @target, to which its counterpart of @r refers.
void File::compare_merged(size_t index, const Relocation &r, uint64_t target,
			  const Kernel &kernel) const
{
	const Section &section = plain.section(index);
	string ours = plain.constant(section, r);
	std::span<const unsigned char> there =
		kernel.at(target + Code::bias(section, r), ours.size());
	if (!std::ranges::equal(there, ours, {}, {}, [](char c) { return (unsigned char)c; }) &&
	    (section.code() || !is_ubsan_path(ours, string_at(kernel, target))))
		die("%s: %s refers to %s, but in the kernel it does not", name.c_str(),
		    name_at(index, r.offset).c_str(),
		    plain.section(plain.symbol(r.symbol).section).flags & SHF_STRINGS
			    ? ('"' + ours.substr(0, ours.size() - 1) + '"').c_str()
			    : "a constant");
}

// In the kernel, the relocations of the section are resolved. Records the address to which each of
// them refers, as that of our symbol or section. All references to one of them must agree.
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
		// The kernel is in the last 2 GiB of the address space, so extend the sign.
		uint64_t target =
			(int32_t)((r.relative() ? start + r.offset : 0) + value - r.addend);
		const Symbol &s = plain.symbol(r.symbol);
		uint64_t *known;
		// A symbol of another file may override a weak one.
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
			die("%s: %s refers to %s, but in the kernel it refers to another symbol",
			    name.c_str(), name_at(index, r.offset).c_str(),
			    s.name.empty() ? plain.object.sections[s.section].name.c_str()
					   : s.name.c_str());
	}
}
