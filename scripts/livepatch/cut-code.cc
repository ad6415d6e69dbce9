// SPDX-License-Identifier: GPL-2.0
#include <set>
#include "cut-code.h"

using std::string, std::vector;

string unnumbered(const string &name)
{
	size_t end = name.find_last_not_of("0123456789");
	return end != string::npos && end + 1 < name.size() && end && name[end] == '.'
		       ? name.substr(0, end)
		       : name;
}

string group(const string &name)
{
	string base = unnumbered(name);
	return base == name ? name : base + '.';
}

string without_cold(const string &name)
{
	size_t at = name.find(".cold");
	return at == string::npos ? name : name.substr(0, at);
}

bool is_jump(const Section &section, const Relocation &r)
{
	if (!section.code() || !r.relative() || !r.offset)
		return false;
	const unsigned char *code = &section.bytes[r.offset];
	return (code[-1] & 0xfe) == 0xe8 ||
	       (r.offset > 1 && code[-2] == 0x0f && (code[-1] & 0xf0) == 0x80);
}

// The size of the immediate operand that follows the address at @offset, which is relative to the
// end of the instruction.
static size_t immediate(const Section &section, uint64_t offset)
{
	if (offset < 3 || (section.bytes[offset - 1] & 0xc7) != 5) // a jump or a call
		return 0;
	const unsigned char *code = &section.bytes[offset];
	unsigned reg = code[-1] >> 3 & 7, opcode = code[-2];
	bool escaped = code[-3] == 0x0f && (opcode & 0xf0) != 0x80;
	size_t word =
		code[-3] == 0x66 || (offset > 3 && code[-4] == 0x66 && (code[-3] & 0xf0) == 0x40)
			? 2
			: 4;
	if (escaped)
		return opcode == 0xba || opcode == 0xa4 || opcode == 0xac;
	switch (opcode) {
	case 0x6b:
	case 0x80:
	case 0x83:
	case 0xc0:
	case 0xc1:
	case 0xc6:
		return 1;
	case 0x69:
	case 0x81:
	case 0xc7:
		return word;
	case 0xf6:
		return reg < 2 ? 1 : 0;
	case 0xf7:
		return reg < 2 ? word : 0;
	}
	return 0;
}

static std::set<string> names(const Function &function)
{
	std::set<string> names;
	for (const Function::Part &part : function.parts)
		for (const Reference &reference : part.code.references)
			names.insert(reference.to);
	return names;
}

string Function::difference(const Function &stock) const
{
	std::set<string> ours = names(*this), theirs = names(stock);
	for (const string &name : ours)
		if (!theirs.contains(name))
			return "it refers to " + name;
	for (const string &name : theirs)
		if (!ours.contains(name))
			return "it no longer refers to " + name;
	if (parts.size() != stock.parts.size())
		return "its code is split into hot and cold parts differently";
	for (size_t i = 0; i < parts.size(); i++) {
		const auto &references = parts[i].code.references;
		auto [own, same] = std::ranges::mismatch(references, stock.parts[i].code.references,
							 {}, &Reference::value, &Reference::value);
		if (own != references.end() && !own->value.empty())
			return "its table " + own->to + " differs";
		if (parts[i].code != stock.parts[i].code)
			return "its instructions differ";
		auto [our, their] = std::ranges::mismatch(parts[i].entries, stock.parts[i].entries);
		if (our != parts[i].entries.end() || their != stock.parts[i].entries.end())
			return "its entries in " +
			       string((our != parts[i].entries.end() ? our : their)->table) +
			       " differ";
	}
	return "";
}

Code::Code(const string &path)
	: object(path)
	, inside(object.sections.size())
{
	for (size_t i = 1; i < object.symbols.size(); i++) {
		const Symbol &s = symbol(i);
		if (!defines(i) || s.type == STT_SECTION)
			continue;
		inside[s.section].push_back(i);
		if (s.type == STT_FUNC && section(s.section).code()) {
			vector<size_t> &parts = functions[without_cold(s.name)];
			parts.insert(s.name == without_cold(s.name) ? parts.begin() : parts.end(),
				     i);
		} else if ((s.size || s.type == STT_OBJECT) && is_data(section(s.section))) {
			variables[group(s.name)].push_back(i);
		}
	}
	for (size_t i = 1; i < object.sections.size(); i++) {
		Section &section = object.sections[i];
		if (section.name == PADDING)
			section.relocations.clear();
		if (const Table *table = table_of(section))
			read_table(i, *table);
		else if (section.name == "__bug_table")
			die("%s: section %s has an unknown format", path.c_str(),
			    section.name.c_str());
	}
}

void Code::read_table(size_t index, const Table &table)
{
	const Section &section = object.sections[index];
	if (section.bytes.empty())
		return;
	size_t count = section.relocations.size() / table.relocations;
	if (!count || section.relocations.size() % table.relocations ||
	    section.bytes.size() % count)
		die("%s: section %s has an unknown format: %zu relocations in %zu bytes",
		    object.path.c_str(), section.name.c_str(), section.relocations.size(),
		    section.bytes.size());
	size_t size = section.bytes.size() / count, last = NONE;
	entry_size[index] = size;
	for (const Relocation &r : section.relocations) {
		size_t number = r.offset / size;
		if (number == last)
			continue;
		last = number;
		const Symbol &s = symbol(r.symbol);
		if (s.section != SHN_UNDEF)
			entries[s.section].push_back(
				{ &table, index, number, size, s.value + r.addend });
	}
}

std::optional<size_t> Code::find(const string &name) const
{
	for (size_t i = 1; i < object.symbols.size(); i++)
		if (symbol(i).name == name && defines(i) && symbol(i).type != STT_SECTION)
			return i;
	return {};
}

size_t Code::main_part(size_t index) const
{
	auto it = functions.find(without_cold(symbol(index).name));
	return it == functions.end() || !defines(index) ? index : it->second[0];
}

std::span<const Relocation> Code::relocations(const Range &range) const
{
	const vector<Relocation> &all = section(range.section).relocations;
	auto from = std::ranges::lower_bound(all, range.start, {}, &Relocation::offset);
	auto to = std::ranges::lower_bound(all, range.start + range.size, {}, &Relocation::offset);
	return { from, to };
}

int64_t Code::bias(const Section &section, const Relocation &r)
{
	return section.code() && r.relative() ? 4 + immediate(section, r.offset) : 0;
}

// The assembler often refers to a section instead of the symbol in it, so look for that symbol.
Code::Place Code::place(const Section &section, const Relocation &r) const
{
	const Symbol &s = symbol(r.symbol);
	if (!defines(r.symbol) || s.type != STT_SECTION)
		return { r.symbol, r.addend };
	const vector<size_t> &symbols = inside[s.section];
	if (this->section(s.section).merged())
		return { NONE, r.addend };
	int64_t offset = r.addend + bias(section, r);
	for (size_t i : symbols) {
		const Symbol &t = symbol(i);
		if (offset >= (int64_t)t.value &&
		    offset < int64_t(t.value + std::max<uint64_t>(t.size, 1)))
			return { i, r.addend - (int64_t)t.value };
	}
	// If the lower bound of an array index is not 0, the address can be outside the variable.
	if (symbols.size() == 1)
		return { symbols[0], r.addend - (int64_t)symbol(symbols[0]).value };
	if (!symbols.empty())
		die("%s: section %s refers to %s%+ld, where no symbol is", object.path.c_str(),
		    section.name.c_str(), this->section(s.section).name.c_str(), offset);
	return { NONE, r.addend };
}

std::optional<Code::Range> Code::replacement(const Entry &entry) const
{
	if (entry.table->name != ALTERNATIVES)
		return {};
	std::span<const Relocation> both =
		relocations({ entry.section, entry.start(), entry.size });
	if (both.size() != 2)
		die("%s: section %s has an unknown format: an entry with %zu relocations",
		    object.path.c_str(), section(entry.section).name.c_str(), both.size());
	const Symbol &s = symbol(both[1].symbol);
	return Range{ s.section, s.value + both[1].addend,
		      section(entry.section).bytes[entry.start() + entry.size - 1] };
}

bool Code::traced(size_t function) const
{
	const Symbol &s = symbol(function);
	auto it = entries.find(s.section);
	return it != entries.end() && std::ranges::any_of(it->second, [&](const Entry &e) {
		       return e.table->name == MCOUNT && e.offset >= s.value &&
			      e.offset < s.value + std::max<uint64_t>(s.size, 16);
	       });
}

bool Code::is_constant(size_t index) const
{
	return defines(index) && is_private(unnumbered(symbol(index).name)) &&
	       !(section(symbol(index).section).flags & SHF_WRITE);
}

string Code::constant(const Section &section, const Relocation &r) const
{
	const Section &merged = this->section(symbol(r.symbol).section);
	uint64_t at = symbol(r.symbol).value + r.addend + bias(section, r), end = at;
	if (merged.flags & SHF_STRINGS)
		while (end < merged.bytes.size() && merged.bytes[end])
			end++;
	end += merged.entry_size;
	if (at >= merged.bytes.size() || end > merged.bytes.size())
		die("%s: section %s refers to an address outside section %s", object.path.c_str(),
		    section.name.c_str(), merged.name.c_str());
	return { merged.bytes.begin() + at, merged.bytes.begin() + end };
}

Reference Code::reference(const Section &section, const Relocation &r, uint64_t start) const
{
	const Symbol &s = symbol(r.symbol);
	Reference reference{ r.offset - start, r.type, {}, 0, {} };
	if (defines(r.symbol) && this->section(s.section).merged()) {
		string text = constant(section, r);
		if (this->section(s.section).flags & SHF_STRINGS)
			text.pop_back();
		reference.to = '"' + text + '"';
		return reference;
	}
	Place place = this->place(section, r);
	if (place.symbol != NONE) {
		reference.to = unnumbered(symbol(place.symbol).name);
		reference.addend = place.offset;
		if (is_constant(place.symbol))
			reference.value.push_back(piece(range(place.symbol)));
	} else {
		// Replacement instructions have no symbols; function() compares them with their
		// entry.
		const Section &there = this->section(s.section);
		reference.to = is_ubsan(there) ? UBSAN : there.name;
		if (is_data(there) && !(there.flags & SHF_WRITE)) {
			reference.addend = place.offset;
			reference.value.push_back(piece({ s.section, 0, there.bytes.size() }));
		}
	}
	return reference;
}

Piece Code::piece(const Range &range, const Table *table) const
{
	const Section &section = this->section(range.section);
	if (range.start > section.bytes.size() || range.size > section.bytes.size() - range.start)
		die("%s: section %s ends before one of its symbols or entries", object.path.c_str(),
		    section.name.c_str());
	Piece piece;
	piece.bytes.assign(section.bytes.begin() + range.start,
			   section.bytes.begin() + range.start + range.size);
	for (size_t i = 0; table && i < table->masked; i++)
		piece.bytes[table->masked_at + i] = 0;
	for (const Relocation &r : relocations(range)) {
		for (uint64_t i = r.offset - range.start;
		     i < std::min(r.offset - range.start + r.width(), range.size); i++)
			piece.bytes[i] = 0;
		piece.references.push_back(reference(section, r, range.start));
	}
	return piece;
}

Function Code::function(const string &name) const
{
	Function function;
	for (size_t i : functions.at(name)) {
		const Symbol &s = symbol(i);
		Function::Part &part = function.parts.emplace_back();
		part.code = piece(range(i));
		auto it = entries.find(s.section);
		if (it == entries.end())
			continue;
		for (const Entry &entry : it->second) {
			// Unwind tables follow from the instructions, so do not compare them.
			if (entry.offset < s.value || entry.offset >= s.value + s.size ||
			    entry.table->name == ORC_IP)
				continue;
			Entry_piece &text = part.entries.emplace_back();
			text.table = entry.table->name;
			text.at = entry.offset - s.value;
			text.entry =
				piece({ entry.section, entry.start(), entry.size }, entry.table);
			if (auto there = replacement(entry))
				text.replacement = piece(*there);
		}
	}
	return function;
}
