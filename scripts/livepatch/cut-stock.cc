// SPDX-License-Identifier: GPL-2.0
// Checks that STOCK differs from PLAIN only in having a section for each function, and in how loops
// are aligned. If so, the options do not change what the compiler inlines, and PATCHED inlines the
// same functions as the kernel.
#include <algorithm>
#include "cut.h"

using std::map, std::set, std::string, std::vector;

// A difference in instructions or padding alone: the references and calls are the same.
static constexpr char INSTRUCTIONS[] = "its instructions";

namespace {
// One part of a function, in plain and in stock.
class Part {
	const Code &plain, &stock;
	const Code::Range ours, theirs; // of plain, of stock
	vector<unsigned char> our_bytes, their_bytes;

public:
	Part(const Code &plain, const Code &stock, size_t our, size_t their)
		: plain(plain)
		, stock(stock)
		, ours(plain.range(our))
		, theirs(stock.range(their))
		, our_bytes(bytes(plain, ours))
		, their_bytes(bytes(stock, theirs))
	{
	}

	// The first difference, as text; empty if there is none.
	string difference();

private:
	static vector<unsigned char> bytes(const Code &code, const Code::Range &range)
	{
		auto start = code.section(range.section).bytes.begin() + range.start;
		return { start, start + range.size };
	}
	void mask(uint64_t at, size_t size)
	{
		std::fill_n(our_bytes.begin() + at, std::min(size, our_bytes.size() - at), 0);
		std::fill_n(their_bytes.begin() + at, std::min(size, their_bytes.size() - at), 0);
	}
	void mask_branches(map<uint64_t, const Relocation *> &their_references);
	bool leads_to(const Relocation &r, size_t section, int64_t offset) const;
	bool same(const Relocation &r, const Relocation &their) const;
	struct Transfers {
		map<string, size_t> rel32, rel8; // number of times, by function

		static size_t count(const string &name, const map<string, size_t> &times)
		{
			auto it = times.find(name);
			return it == times.end() ? 0 : it->second;
		}
	};
	Transfers transfers() const;
	string difference_in_references() const;
	string difference_in_bytes();
	bool is_static_branch(const Relocation &r) const;
};
} // namespace

// Where kernels have IBT, objtool has replaced the jumps of static branches that are off with NOPs
// in plain.
void Part::mask_branches(map<uint64_t, const Relocation *> &their_references)
{
	constexpr unsigned char SHORT[] = { 0x66, 0x90 }, LONG[] = { 0x0f, 0x1f, 0x44, 0, 0 };
	auto entries = plain.entries.find(ours.section);
	if (entries == plain.entries.end())
		return;
	for (const Code::Entry &entry : entries->second) {
		uint64_t at = entry.offset - ours.start;
		if (entry.table->name != JUMPS || at >= ours.size)
			continue;
		auto has = [&](auto &nop) {
			return at + sizeof nop <= ours.size &&
			       std::ranges::equal(std::span(our_bytes).subspan(at, sizeof nop),
						  nop);
		};
		if (has(SHORT) && their_bytes[at] == 0xeb)
			mask(at, sizeof SHORT);
		else if (has(LONG) && their_bytes[at] == 0xe9) {
			mask(at, sizeof LONG);
			their_references.erase(at + 1);
		}
	}
}

// Whether @r of stock refers to the symbol at @offset in @section of plain.
bool Part::leads_to(const Relocation &r, size_t section, int64_t offset) const
{
	const Symbol &to = stock.symbol(r.symbol);
	if (!stock.defines(r.symbol))
		return false;
	auto same = [&](size_t index) {
		const Symbol &s = stock.symbol(index);
		return std::ranges::any_of(plain.inside[section], [&](size_t i) {
			return int64_t(plain.symbol(i).value) - offset ==
				       int64_t(s.value - to.value) - r.addend &&
			       unnumbered(plain.symbol(i).name) == unnumbered(s.name);
		});
	};
	if (to.type != STT_SECTION)
		return same(r.symbol);
	// Data without a symbol cannot be matched here. compare() and check_data() check it.
	return stock.inside[to.section].empty() ||
	       std::ranges::any_of(stock.inside[to.section], same);
}

// Whether @r of plain and @their of stock refer to the same symbol or constant.
bool Part::same(const Relocation &r, const Relocation &their) const
{
	const Symbol &s = plain.symbol(r.symbol), &t = stock.symbol(their.symbol);
	if (r.type != their.type)
		return false;
	if (!plain.defines(r.symbol))
		return !stock.defines(their.symbol) && s.name == t.name && r.addend == their.addend;
	if (plain.section(s.section).merged())
		return stock.defines(their.symbol) && stock.section(t.section).merged() &&
		       plain.constant(plain.section(ours.section), r) ==
			       stock.constant(stock.section(theirs.section), their);
	return leads_to(their, s.section, s.value + r.addend);
}

// Counts the jumps and calls to other functions of the same section, which have no relocations.
Part::Transfers Part::transfers() const
{
	const Section &section = plain.section(ours.section);
	Transfers found;
	set<uint64_t> filled;
	for (const Relocation &r : plain.relocations(ours))
		if (r.width())
			filled.insert(r.offset);
	auto add = [&](uint64_t at, size_t width) {
		int32_t value = int8_t(section.bytes[at]);
		if (width == sizeof value)
			memcpy(&value, &section.bytes[at], sizeof value);
		uint64_t to = at + width + value;
		if (filled.contains(at) || to - ours.start < ours.size)
			return;
		for (size_t i : plain.inside[ours.section])
			if (plain.symbol(i).value == to && plain.symbol(i).type == STT_FUNC)
				(width == 1 ? found.rel8 : found.rel32)[plain.symbol(i).name]++;
	};
	for (uint64_t at = ours.start; at + 2 <= ours.start + ours.size; at++) {
		unsigned char opcode = section.bytes[at];
		uint64_t left = ours.start + ours.size - at;
		if (opcode == 0xeb || (opcode & 0xf0) == 0x70)
			add(at + 1, 1);
		else if ((opcode & 0xfe) == 0xe8 && left >= 5)
			add(at + 1, 4);
		else if (opcode == 0x0f && (section.bytes[at + 1] & 0xf0) == 0x80 && left >= 6)
			add(at + 2, 4);
	}
	return found;
}

// In plain the assembler may shorten the jump of a tail call to a function in the same section,
// which moves the code behind it. So compare the references in their order, the number of calls of
// each function, and roughly the size.
string Part::difference_in_references() const
{
	const Transfers transfers = this->transfers();
	vector<const Relocation *> our_references;
	map<string, size_t> others;
	for (const Relocation &r : plain.relocations(ours))
		if (r.width())
			our_references.push_back(&r);
	auto next = our_references.begin();
	for (const Relocation &r : stock.relocations(theirs)) {
		if (!r.width())
			continue;
		if (next != our_references.end() && same(**next, r)) {
			next++;
			continue;
		}
		Code::Place to = stock.place(stock.section(theirs.section), r);
		string name = to.symbol == NONE ? "" : stock.symbol(to.symbol).name;
		std::optional<size_t> local = plain.find(name);
		if (is_static_branch(r))
			continue;
		if (!local || plain.symbol(*local).section != ours.section ||
		    !is_jump(stock.section(theirs.section), r))
			return "it refers to " + name;
		others[name]++;
	}
	if (next != our_references.end())
		return "it does not refer to " + plain.symbol((*next)->symbol).name;
	// Other bytes may look like a jump with an 8-bit offset, but hardly like one with 32 bits.
	size_t shortened = 0;
	for (auto &[name, times] : others) {
		size_t rel32 = transfers.count(name, transfers.rel32);
		if (times < rel32 || times > rel32 + transfers.count(name, transfers.rel8))
			return "the number of calls of " + name;
		shortened += times - rel32;
	}
	for (auto &[name, times] : transfers.rel32)
		if (!others.contains(name))
			return "it does not call " + name;
	constexpr uint64_t SAVED = 4, ALIGNMENT = 16;
	uint64_t size = std::max(ours.size, theirs.size) - std::min(ours.size, theirs.size);
	return shortened && size < shortened * SAVED + ALIGNMENT ? "" : INSTRUCTIONS;
}

// Whether @r of stock is the jump of a static branch, which may be a NOP in plain.
bool Part::is_static_branch(const Relocation &r) const
{
	auto entries = stock.entries.find(theirs.section);
	return entries != stock.entries.end() &&
	       std::ranges::any_of(entries->second, [&](const Code::Entry &entry) {
		       return entry.table->name == JUMPS && entry.offset + 1 == r.offset;
	       });
}

string Part::difference()
{
	string difference = difference_in_bytes();
	return difference.empty() ? "" : difference_in_references();
}

string Part::difference_in_bytes()
{
	if (ours.size != theirs.size)
		return "its size";
	map<uint64_t, const Relocation *> our_references, their_references;
	for (const Relocation &r : plain.relocations(ours))
		if (r.width())
			our_references[r.offset - ours.start] = &r;
	for (const Relocation &r : stock.relocations(theirs))
		if (r.width())
			their_references[r.offset - theirs.start] = &r;
	mask_branches(their_references);
	for (auto &[at, r] : their_references) {
		auto ours_at = our_references.find(at);
		bool equal;
		if (ours_at != our_references.end()) {
			equal = same(*ours_at->second, *r);
			our_references.erase(ours_at);
		} else {
			// In plain, a reference within the section has no relocation.
			int32_t value = 0;
			bool filled = r->relative() && r->width() == sizeof value &&
				      at + sizeof value <= our_bytes.size();
			if (filled)
				memcpy(&value, &our_bytes[at], sizeof value);
			equal = filled &&
				leads_to(*r, ours.section, int64_t(ours.start + at) + value);
		}
		if (!equal)
			return "the reference at offset " + std::to_string(at);
		mask(at, r->width());
	}
	if (!our_references.empty())
		return "the reference at offset " + std::to_string(our_references.begin()->first);
	return our_bytes == their_bytes ? "" : INSTRUCTIONS;
}

// The first difference between a function of @plain and one of @stock, given by their parts.
static string difference(const Code &plain, const Code &stock, const vector<size_t> &ours,
			 const vector<size_t> &theirs)
{
	string difference;
	for (size_t i = 0; i < ours.size() && difference.empty(); i++)
		difference = Part(plain, stock, ours[i], theirs[i]).difference();
	return difference;
}

void File::check_stock() const
{
	constexpr char HOW[] = "so cut cannot tell what the kernel inlines";
	for (auto &[function, parts] : plain.functions)
		if (!stock.functions.contains(function))
			die("%s: %s does not exist if compiled with -ffunction-sections, %s",
			    name.c_str(), function.c_str(), HOW);
	for (auto &[function, parts] : stock.functions) {
		auto theirs = plain.functions.find(function);
		if (theirs == plain.functions.end() || theirs->second.size() != parts.size())
			die("%s: %s does not exist, or is not split in the same way, if compiled "
			    "without -ffunction-sections, %s",
			    name.c_str(), function.c_str(), HOW);
		string differs = difference(plain, stock, theirs->second, parts);
		auto same = aligned.functions.find(function);
		if (differs == INSTRUCTIONS && same != aligned.functions.end() &&
		    same->second.size() == parts.size())
			differs = difference(aligned, stock, same->second, parts);
		if (!differs.empty())
			die("%s: %s differs if compiled with -ffunction-sections (%s), %s",
			    name.c_str(), function.c_str(), differs.c_str(), HOW);
	}
}
