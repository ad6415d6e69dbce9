// SPDX-License-Identifier: GPL-2.0
// cut VMLINUX SYMBOLS MODULE.SYMVERS PLAN PLAIN STOCK PATCHED OUT
//
// Makes the objects of a live patch: what differs between two compilations of the same files, bound to
// the kernel that is to be patched. FILE, as kernel/events/core.o, was compiled three times:
//   PLAIN/FILE    of the kernel's source, just as the kernel's own build does it
//   STOCK/FILE    of the same, with -ffunction-sections -fdata-sections
//   PATCHED/FILE  of the patched source, with these options as well
//
// 1. place(): PLAIN/FILE must be in VMLINUX byte by byte, in one piece a section. So we compile what
//    runs, with the same compiler, and know what was inlined where. The kernel's own instructions tell
//    where each symbol that FILE uses is, a static one and one of many of its name, too.
// 2. What differs between STOCK and PATCHED is to be replaced. What cannot be replaced, as it is not
//    traced, is a clone of the compiler's, or PLAN says so, is copied, and who calls it is replaced in
//    its turn. No call of the kernel to what was copied may be left over; all of its code is searched.
// 3. OUT/FILE has these functions, as livepatch_NAME, and what is new. All else they find in the kernel.
//    A function that the kernel has keeps its address there, so that no pointer leads into the module.
// OUT/functions.h lists what is replaced.
//
// PLAN has a line each of: "object FILE"; "copy NAME", not to be replaced itself; "keep NAME", to stay
// as it is though it changes or calls what is copied; "without PATCH", which PATCHED has not. Comments (#)
// tell why.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>
#include <sstream>
#include "elf.h"
#include "kernel.h"

namespace {
using std::set, std::map, std::string, std::vector;

// Sections with an entry for each of many places in the code, with so many @relocations, the same number
// of bytes each: @size, if that is what tells kernels apart. The first relocation of an entry says which
// place; what is @masked, as a line number, does not make a difference.
struct Table {
	const char *name;
	size_t relocations, masked_at, masked, size = 0;
};
constexpr char RUNTIME[] = "runtime_";
constexpr Table TABLES[] = {
	{ "__jump_table", 3, 0, 0 },
	{ "__bug_table", 2, 8, 2, 12 },
	{ "__bug_table", 3, 12, 2, 16 }, // with the format of a WARN()
	{ "__ex_table", 2, 0, 0 },
	{ "__mcount_loc", 1, 0, 0 },
	{ ".altinstructions", 2, 0, 0 },
	{ ".smp_locks", 1, 0, 0 },
	{ ".parainstructions", 1, 0, 0 },
	{ ".call_sites", 1, 0, 0 },
	{ ".return_sites", 1, 0, 0 },
	{ ".retpoline_sites", 1, 0, 0 },
	{ ".static_call_sites", 2, 0, 0 },
	{ ".orc_unwind_ip", 1, 0, 0 },
	// What objtool goes by, where it has not been at the object yet.
	{ ".discard.reachable", 1, 0, 0 },
	{ ".discard.unreachable", 1, 0, 0 },
	{ ".discard.retpoline_safe", 1, 0, 0 },
	{ ".discard.ignore_alts", 1, 0, 0 },
	{ ".discard.instr_begin", 1, 0, 0 },
	{ ".discard.instr_end", 1, 0, 0 },
	{ ".discard.annotate_insn", 1, 0, 0 },
	// runtime_ptr_NAME and the like: constants that the kernel fills in as it boots, of its own code.
	{ RUNTIME, 1, 0, 0 },
};
constexpr size_t ORC_ENTRY = 6; // of .orc_unwind, one for each of .orc_unwind_ip

// Static variables of a function of which it may have its own.
constexpr const char *OWN[] = { "__func__", "__already_done",	   "__warned",
				"__key",    "__PRETTY_FUNCTION__", "CSWTCH" };

// What the kernel's checks of undefined behaviour are told has a number for a name. The same goes for it.
constexpr char UBSAN[] = ".data..Lubsan_";
bool is_ubsan(const Section &section)
{
	return section.name.starts_with(UBSAN);
}

constexpr size_t NONE = -1;
constexpr unsigned char NOP = 0x90;

// The compiler numbers what is static in a function: "name.12".
string unnumbered(const string &name)
{
	size_t end = name.find_last_not_of("0123456789");
	return end != string::npos && end + 1 < name.size() && end && name[end] == '.'
		       ? name.substr(0, end)
		       : name;
}

// The unlikely part of a function: "name.cold"; older compilers number that.
string whole(const string &name)
{
	size_t at = name.find(".cold");
	return at == string::npos ? name : name.substr(0, at);
}

// How many bytes follow in its instruction, where @offset is that of an address relative to the end.
size_t immediate(const Section &section, uint64_t offset)
{
	if (offset < 3 || (section.bytes[offset - 1] & 0xc7) != 5) // a jump or a call
		return 0;
	const unsigned char *code = &section.bytes[offset];
	unsigned which = code[-1] >> 3 & 7, opcode = code[-2];
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
		return which < 2 ? 1 : 0;
	case 0xf7:
		return which < 2 ? word : 0;
	}
	return 0;
}

// Calls included, conditional ones too.
bool is_jump(const Section &section, const Relocation &r)
{
	if (!section.code() || !r.relative() || !r.offset)
		return false;
	const unsigned char *code = &section.bytes[r.offset];
	return (code[-1] & 0xfe) == 0xe8 ||
	       (r.offset > 1 && code[-2] == 0x0f && (code[-1] & 0xf0) == 0x80);
}

const Table *table_of(const Section &section)
{
	const Table *table = std::ranges::find_if(TABLES, [&](const Table &t) {
		return (section.name == t.name ||
			(t.name == RUNTIME && section.name.starts_with(RUNTIME))) &&
		       (!t.size || section.bytes.size() * t.relocations ==
					   section.relocations.size() * t.size);
	});
	return table == std::end(TABLES) ? nullptr : table;
}

struct Place {
	size_t symbol; // index, or NONE: a section that has no symbols
	int64_t offset;
};

// An object, by functions.
struct Code {
	Object object;
	map<string, vector<size_t>> functions; // the symbols of each, that of the unlikely part last
	struct Entry {
		size_t table, section, number, size;
		uint64_t start() const
		{
			return number * size;
		}
	};
	map<size_t, vector<std::pair<uint64_t, Entry>>>
		entries; // by section with code: offset, entry
	map<size_t, size_t> entry_size; // by section with entries
	vector<vector<size_t>> inside; // by section: its symbols

	explicit Code(const string &path)
		: object(path)
		, inside(object.sections.size())
	{
		for (size_t i = 1; i < object.symbols.size(); i++) {
			const Symbol &s = object.symbols[i];
			if (s.section == SHN_UNDEF || s.section >= SHN_LORESERVE ||
			    s.type == STT_SECTION)
				continue;
			inside[s.section].push_back(i);
			if (s.type == STT_FUNC && object.sections[s.section].code()) {
				vector<size_t> &parts = functions[whole(s.name)];
				parts.insert(s.name == whole(s.name) ? parts.begin() : parts.end(), i);
			}
		}
		for (size_t i = 1; i < object.sections.size(); i++) {
			Section &section = object.sections[i];
			// Of the room before each function, which has no symbol. Nobody wants it.
			if (section.name == "__patchable_function_entries")
				section.relocations.clear();
			const Table *table = table_of(section);
			if (!table && section.name == "__bug_table")
				die("%s: %s is of a kind that is not known here", path.c_str(),
				    section.name.c_str());
			if (!table || section.bytes.empty())
				continue;
			size_t count = section.relocations.size() / table->relocations;
			if (!count || section.relocations.size() % table->relocations ||
			    section.bytes.size() % count)
				die("%s: %s is of a kind that is not known here", path.c_str(),
				    section.name.c_str());
			size_t size = section.bytes.size() / count, last = NONE;
			entry_size[i] = size;
			for (const Relocation &r : section.relocations) {
				size_t number = r.offset / size;
				if (number == last)
					continue;
				last = number;
				const Symbol &s = object.symbols[r.symbol];
				if (s.section != SHN_UNDEF)
					entries[s.section].push_back(
						{ s.value + r.addend,
						  { size_t(table - TABLES), i, number, size } });
			}
		}
	}

	// Relocations of the entry.
	vector<Relocation> relocations(const Entry &entry) const
	{
		vector<Relocation> found;
		for (const Relocation &r : object.sections[entry.section].relocations)
			if (r.offset >= entry.start() && r.offset < entry.start() + entry.size)
				found.push_back(r);
		return found;
	}

	// Instructions count from their end.
	static int64_t bias(const Section &section, const Relocation &r)
	{
		return section.code() && r.relative() ? 4 + immediate(section, r.offset) : 0;
	}

	// What a relocation in @section is about: the assembler names the section rather than what is in it.
	Place place(const Section &section, const Relocation &r) const
	{
		const Symbol &s = object.symbols[r.symbol];
		if (s.section == SHN_UNDEF || s.section >= SHN_LORESERVE || s.type != STT_SECTION)
			return { r.symbol, r.addend };
		const vector<size_t> &symbols = inside[s.section];
		if (object.sections[s.section].merged())
			return { NONE, r.addend };
		int64_t offset = r.addend + bias(section, r);
		for (size_t i : symbols) {
			const Symbol &t = object.symbols[i];
			if (offset >= (int64_t)t.value &&
			    offset < int64_t(t.value + std::max<uint64_t>(t.size, 1)))
				return { i, r.addend - (int64_t)t.value };
		}
		// An index that does not start from 0 leads beside the variable.
		if (symbols.size() == 1)
			return { symbols[0], r.addend - (int64_t)object.symbols[symbols[0]].value };
		if (!symbols.empty())
			die("%s: %s%+ld is in none of the variables there", object.path.c_str(),
			    object.sections[s.section].name.c_str(), offset);
		return { NONE, r.addend };
	}

	const Section &section_of(size_t symbol) const
	{
		return object.sections[object.symbols[symbol].section];
	}

	bool traced(const string &function) const
	{
		const Symbol &s = object.symbols[functions.at(function)[0]];
		auto it = entries.find(s.section);
		return it != entries.end() && std::ranges::any_of(it->second, [&](auto &e) {
			       return TABLES[e.second.table].name == string("__mcount_loc") &&
				      e.first >= s.value &&
				      e.first < s.value + std::max<uint64_t>(s.size, 16);
		       });
	}

	// All that makes the function what it is, but for where it and others are.
	string text(const string &function) const
	{
		std::ostringstream out;
		auto reloc = [&](const Section &section, const Relocation &r, uint64_t start) {
			out << ' ' << r.offset - start << ' ' << r.type << ' ';
			const Symbol &s = object.symbols[r.symbol];
			bool defined = s.section != SHN_UNDEF && s.section < SHN_LORESERVE;
			if (defined && object.sections[s.section].merged()) {
				const Section &merged = object.sections[s.section];
				size_t at = s.value + r.addend + bias(section, r);
				size_t size = merged.flags & SHF_STRINGS
						      ? strnlen((const char *)&merged.bytes[at],
								merged.bytes.size() - at)
						      : merged.entry_size;
				out << '"' << string((const char *)&merged.bytes[at], size) << '"';
				return;
			}
			Place place = this->place(section, r);
			out << (place.symbol == NONE
					? (is_ubsan(object.sections[s.section])
						   ? UBSAN
						   : object.sections[s.section].name)
					: unnumbered(object.symbols[place.symbol].name));
			// Replacements of instructions have no names: what they are is below.
			if (place.symbol != NONE)
				out << '+' << place.offset;
		};
		auto bytes = [&](const Section &section, uint64_t start, uint64_t size,
				 const Table *table) {
			vector<unsigned char> copy(section.bytes.begin() + start,
						   section.bytes.begin() + start + size);
			for (const Relocation &r : section.relocations)
				for (uint64_t i = r.offset; i < r.offset + r.width(); i++)
					if (i >= start && i < start + size)
						copy[i - start] = 0;
			for (size_t i = 0; table && i < table->masked; i++)
				copy[table->masked_at + i] = 0;
			out.write((const char *)copy.data(), copy.size());
			for (const Relocation &r : section.relocations)
				if (r.offset >= start && r.offset < start + size)
					reloc(section, r, start);
		};
		for (size_t i : functions.at(function)) {
			const Symbol &s = object.symbols[i];
			out << '[';
			bytes(object.sections[s.section], s.value, s.size, nullptr);
			auto it = entries.find(s.section);
			if (it == entries.end())
				continue;
			for (auto &[offset, entry] : it->second) {
				const Table &table = TABLES[entry.table];
				const Section &section = object.sections[entry.section];
				if (offset < s.value || offset >= s.value + s.size ||
				    section.name == ".orc_unwind_ip")
					continue;
				out << '(' << table.name << offset - s.value;
				bytes(section, entry.start(), entry.size, &table);
				if (auto [alternative, start, size] = replacement(entry);
				    alternative)
					bytes(*alternative, start, size, nullptr);
			}
		}
		return out.str();
	}

	// Of an entry of .altinstructions: the instructions to put there.
	std::tuple<const Section *, uint64_t, uint64_t> replacement(const Entry &entry) const
	{
		const Section &section = object.sections[entry.section];
		vector<Relocation> both = relocations(entry);
		if (section.name != ".altinstructions" || both.size() != 2)
			return { nullptr, 0, 0 };
		const Symbol &s = object.symbols[both[1].symbol];
		return { &object.sections[s.section], s.value + both[1].addend,
			 section.bytes[entry.start() + entry.size - 1] };
	}
};

// A file, and where it is in the kernel.
struct File {
	string name;
	Object plain;
	Code stock, patched;
	map<size_t, uint64_t> base; // of the sections of plain
	map<string, uint64_t> external; // what plain wants from other files

	set<string> changed, replaced, copied, added; // functions

	bool kept(const string &function) const
	{
		return replaced.contains(function) || copied.contains(function) ||
		       added.contains(function);
	}

	unsigned char bind(const string &function) const
	{
		return patched.object.symbols[patched.functions.at(function)[0]].bind;
	}
	void place(const Kernel &kernel);
	std::optional<uint64_t> address(const string &symbol) const
	{
		if (auto it = external.find(symbol); it != external.end())
			return it->second;
		for (const Symbol &s : plain.symbols)
			if (s.name == symbol && s.type != STT_SECTION && s.section != SHN_UNDEF)
				if (auto it = base.find(s.section); it != base.end())
					return it->second + s.value;
		return {};
	}
};

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

	auto function_at = [&](size_t section, uint64_t offset) {
		for (const Symbol &s : plain.symbols)
			if (s.section == section && s.type == STT_FUNC && offset >= s.value &&
			    offset < s.value + s.size)
				return s.name;
		return plain.sections[section].name;
	};
	set<size_t> done;
	for (size_t before = 0; before != base.size();) {
		before = base.size();
		for (auto [i, start] : map(base)) {
			const Section &section = plain.sections[i];
			if (!done.insert(i).second || section.type == SHT_NOBITS ||
			    start < 0x80000000)
				continue;
			std::span<const unsigned char> there =
				kernel.at(start, section.bytes.size());
			if (there.size() != section.bytes.size())
				die("%s: the kernel has no such section: %s", name.c_str(),
				    section.name.c_str());
			vector<unsigned char> ours = section.bytes,
					      theirs(there.begin(), there.end());
			for (const Relocation &r : section.relocations)
				for (size_t b = r.offset; b < r.offset + r.width(); b++)
					ours[b] = theirs[b] = 0;
			auto [our, their] = std::ranges::mismatch(ours, theirs);
			if (our != ours.end() && section.code())
				die("%s: %s is not what the kernel has; is this another compiler, "
				    "source or configuration?",
				    name.c_str(), function_at(i, our - ours.begin()).c_str());
			for (const Relocation &r : section.relocations) {
				if (r.width() < 4)
					continue;
				uint32_t value;
				memcpy(&value, &there[r.offset], sizeof value);
				// The kernel is in the last 2 GiB.
				uint64_t target = (int32_t)((r.relative() ? start + r.offset : 0) +
							    value - r.addend);
				const Symbol &s = plain.symbols[r.symbol];
				uint64_t *known;
				// Another file may have a stronger one.
				if (s.section == SHN_UNDEF || s.bind == STB_WEAK)
					known = &external.try_emplace(s.name, target).first->second;
				else if (s.section < SHN_LORESERVE &&
					 !plain.sections[s.section].merged())
					known = &base.try_emplace(s.section, target -= s.value)
							 .first->second;
				else
					continue;
				if (!same_address(*known, target))
					die("%s: %s refers to another %s than the kernel's does",
					    name.c_str(), function_at(i, r.offset).c_str(),
					    s.name.empty() ? plain.sections[s.section].name.c_str()
							   : s.name.c_str());
			}
		}
	}
}

struct Plan {
	set<string> objects, copy, keep, without;

	explicit Plan(const string &path)
	{
		std::ifstream in(path);
		if (!in)
			die("cannot read %s", path.c_str());
		for (string line; std::getline(in, line);) {
			std::istringstream words(line.substr(0, line.find('#')));
			string verb, name, rest;
			if (!(words >> verb))
				continue;
			set<string> *which = verb == "object"	 ? &objects
					     : verb == "copy"	 ? &copy
					     : verb == "keep"	 ? &keep
					     : verb == "without" ? &without
								 : nullptr;
			if (!which || !(words >> name) || words >> rest)
				die("%s: not \"object\", \"copy\", \"keep\" or \"without\" and a "
				    "name: %s",
				    path.c_str(), line.c_str());
			which->insert(name);
		}
	}
};

class Cut {
	Kernel &kernel;
	const Plan &plan;
	const set<string> &exported;
	vector<File> &files;

public:
	Cut(Kernel &kernel, const Plan &plan, const set<string> &exported, vector<File> &files)
		: kernel(kernel)
		, plan(plan)
		, exported(exported)
		, files(files)
	{
	}

	void select();
	void check_calls(const vector<Kernel_symbol> &symbols) const;
	Object make(const File &file) const;

	unsigned position(const File &file, const string &name) const
	{
		std::optional<uint64_t> address = file.address(name);
		vector<uint64_t> all = kernel.addresses(name);
		if (!address && all.size() == 1)
			address = all[0];
		std::optional<unsigned> position =
			address ? kernel.position(name, *address) : std::nullopt;
		if (!position)
			die("%s: %s is %zu times in the kernel, and nothing tells which it is",
			    file.name.c_str(), name.c_str(), all.size());
		return *position;
	}
};

void Cut::select()
{
	std::function<void(File &, const string &)> change, add;

	// Whoever calls @function, of @file or of any if it is global.
	auto callers = [&](const File &of, const string &function, auto call) {
		for (File &file : files) {
			if (&file != &of && of.bind(function) == STB_LOCAL)
				continue;
			for (const Section &section : file.stock.object.sections)
				for (const Relocation &r : section.relocations) {
					if (section.code() || table_of(section) ||
					    !(section.flags & SHF_ALLOC) ||
					    section.name.starts_with(".discard"))
						continue;
					Place to = file.stock.place(section, r);
					if (to.symbol != NONE &&
					    file.stock.object.symbols[to.symbol].name == function)
						die("%s: %s points to %s, which cannot be replaced",
						    file.name.c_str(), section.name.c_str(),
						    function.c_str());
				}
			for (auto &[caller, symbols] : file.patched.functions) {
				for (size_t i : symbols) {
					const Symbol &s = file.patched.object.symbols[i];
					const Section &section =
						file.patched.object.sections[s.section];
					for (const Relocation &r : section.relocations) {
						if (r.offset < s.value ||
						    r.offset >= s.value + s.size)
							continue;
						Place to = file.patched.place(section, r);
						if (to.symbol != NONE && caller != function &&
						    whole(file.patched.object.symbols[to.symbol]
								  .name) == function)
							call(file, caller);
					}
				}
			}
		}
	};
	change = [&](File &file, const string &function) {
		if (plan.keep.contains(function) || file.replaced.contains(function) ||
		    file.copied.contains(function) || !file.stock.functions.contains(function))
			return;
		const Symbol &s =
			file.patched.object.symbols[file.patched.functions.at(function)[0]];
		if (file.patched.object.sections[s.section].name.starts_with(".init"))
			die("%s: %s has run when the module is loaded; say \"keep\" in the plan, "
			    "and why",
			    file.name.c_str(), function.c_str());
		if (function.find('.') == string::npos && file.stock.traced(function) &&
		    !plan.copy.contains(function)) {
			file.replaced.insert(function);
		} else {
			file.copied.insert(function);
			callers(file, function, change);
		}
	};
	for (File &file : files) {
		for (auto &[function, symbols] : file.patched.functions)
			if (file.stock.functions.contains(function) &&
			    file.stock.text(function) != file.patched.text(function))
				file.changed.insert(function);
	}
	for (File &file : files)
		for (const string &function : file.changed)
			change(file, function);

	// What is new, as far as these need it.
	add = [&](File &file, const string &function) {
		for (size_t i : file.patched.functions.at(function)) {
			const Section &section = file.patched.section_of(i);
			for (const Relocation &r : section.relocations) {
				Place to = file.patched.place(section, r);
				if (to.symbol == NONE)
					continue;
				string name = whole(file.patched.object.symbols[to.symbol].name);
				for (File &other : files) {
					bool here =
						&other == &file ||
						file.patched.object.symbols[to.symbol].section ==
							SHN_UNDEF;
					if (here && other.patched.functions.contains(name) &&
					    !other.stock.functions.contains(name) &&
					    other.added.insert(name).second)
						add(other, name);
				}
			}
		}
	};
	for (File &file : files) {
		// What is global is for another file, or for the module.
		for (auto &[function, symbols] : file.patched.functions)
			if (file.bind(function) == STB_GLOBAL &&
			    !file.stock.functions.contains(function) &&
			    file.added.insert(function).second)
				add(file, function);
		for (const set<string> &functions : { file.replaced, file.copied })
			for (const string &function : functions)
				add(file, function);
	}
}

// Nothing that stays as it is may call or point to what was copied. What is static its own file alone
// can, which select() has seen; so look at what is global, in all the kernel.
void Cut::check_calls(const vector<Kernel_symbol> &symbols) const
{
	map<uint32_t, string> copied;
	set<string> known = plan.keep;
	for (const File &file : files) {
		known.insert(file.replaced.begin(), file.replaced.end());
		known.insert(file.copied.begin(), file.copied.end());
		for (const string &function : file.copied)
			if (file.bind(function) != STB_LOCAL)
				if (auto address = file.address(function))
					copied[*address] = function;
	}
	vector<Kernel_symbol> sorted = symbols;
	std::ranges::stable_sort(sorted, {}, &Kernel_symbol::address);
	for (auto &[start, bytes] : kernel.code()) {
		for (size_t i = 2; i + 4 <= bytes.size(); i++) {
			uint32_t value;
			memcpy(&value, &bytes[i], sizeof value);
			bool jump = (bytes[i - 1] & 0xfe) == 0xe8 ||
				    (bytes[i - 2] == 0x0f && (bytes[i - 1] & 0xf0) == 0x80);
			bool move = bytes[i - 2] == 0xc7 && (bytes[i - 1] & 0xf8) == 0xc0;
			auto it = jump	 ? copied.find(uint32_t(start + i + 4 + value))
				  : move ? copied.find(value)
					 : copied.end();
			if (it == copied.end())
				continue;
			// Several names may be at one address.
			auto after = std::ranges::upper_bound(sorted, start + i, {},
							      &Kernel_symbol::address);
			uint64_t at = after == sorted.begin() ? 0 : std::prev(after)->address;
			bool fine = false;
			string caller;
			for (auto s = after; s != sorted.begin() && std::prev(s)->address == at;
			     s--) {
				caller = std::prev(s)->name;
				fine |= known.contains(whole(caller));
			}
			if (!fine)
				die("the kernel's %s calls %s, which cannot be replaced",
				    caller.c_str(), it->second.c_str());
		}
	}
}

Object Cut::make(const File &file) const
{
	const Object &from = file.patched.object;
	Object out;
	map<size_t, size_t> sections; // of @from, whole
	map<size_t, size_t> symbols; // of @from
	map<string, size_t> undefined;
	vector<std::function<void()>> todo;

	auto undefined_symbol = [&](const string &name) {
		auto [it, added] = undefined.try_emplace(name, 0);
		if (added)
			it->second =
				out.add(Symbol{ name, STB_GLOBAL, STT_NOTYPE, 0, SHN_UNDEF, 0, 0 });
		return it->second;
	};
	auto kernels = [&](const string &name) {
		if (exported.contains(name))
			return undefined_symbol(name);
		return undefined_symbol(".klp.sym.vmlinux." + name + ',' +
					std::to_string(position(file, name)));
	};
	auto renamed = [&](const string &name, const File &of) {
		string function = whole(name);
		return of.replaced.contains(function) || of.copied.contains(function)
			       ? "livepatch_" + name
			       : name;
	};
	// A pointer is made to @function, or to something else.
	auto pointed = [&](const string &function) {
		std::optional<uint64_t> address = file.address(function);
		if (vector<uint64_t> all = kernel.addresses(function); !address && all.size() == 1)
			address = all[0];
		if (address && kernel.is_code(*address) && !kernel.has_pointers(*address))
			die("%s: the address of %s is taken, and the kernel has no pointer to it, "
			    "so the CPU may refuse to go there (IBT)",
			    file.name.c_str(), function.c_str());
	};
	std::function<Relocation(const Section &, Relocation)> convert;
	// Replacements of instructions that are in what is taken, of all those of the file.
	set<std::pair<uint64_t, uint64_t>> replacements;
	auto wanted = [&](const Section &section, uint64_t offset) {
		return section.name != ".altinstr_replacement" ||
		       std::ranges::any_of(replacements, [&](auto &r) {
			       return offset >= r.first && offset < r.first + r.second;
		       });
	};

	// @size bytes of a section of @from, with what they refer to.
	auto take = [&](size_t index, uint64_t start, uint64_t size) {
		const Section &section = from.sections[index];
		Section taken = section;
		taken.bytes.assign(section.bytes.begin() + start,
				   section.bytes.begin() + start + size);
		taken.relocations.clear();
		size_t to = out.add(std::move(taken));
		todo.push_back([&, index, start, size, to] {
			for (const Relocation &r : from.sections[index].relocations)
				if (r.offset >= start && r.offset < start + size &&
				    wanted(from.sections[index], r.offset)) {
					Relocation converted = convert(from.sections[index], r);
					converted.offset -= start;
					out.sections[to].relocations.push_back(converted);
				}
			// Without what they refer to the others are nonsense, which objtool reads.
			for (uint64_t i = 0; i < size; i++)
				if (!wanted(from.sections[index], start + i))
					out.sections[to].bytes[i] = NOP;
		});
		return to;
	};
	auto take_whole = [&](size_t index) {
		auto [it, added] = sections.try_emplace(index, 0);
		if (added)
			it->second = take(index, 0, from.sections[index].bytes.size());
		return it->second;
	};
	// A symbol for the whole section.
	map<size_t, size_t> section_symbols;
	auto section_symbol = [&](size_t index) {
		if (from.sections[index].flags & SHF_WRITE && !from.sections[index].code() &&
		    !is_ubsan(from.sections[index]))
			die("%s: something nameless in %s is used, which may be the kernel's",
			    file.name.c_str(), from.sections[index].name.c_str());
		auto [it, added] = section_symbols.try_emplace(index, 0);
		if (added)
			it->second = out.add(Symbol{ "", STB_LOCAL, STT_SECTION, 0,
						     (uint16_t)take_whole(index), 0, 0 });
		return it->second;
	};
	// An entry of a table, which WARN() tells its handler; it is there once the tables are.
	map<std::pair<size_t, size_t>, size_t> entry_symbols;
	auto entry_symbol = [&](size_t section, size_t number) {
		auto [it, added] = entry_symbols.try_emplace({ section, number }, 0);
		if (added)
			it->second = out.add(Symbol{ "entry." + std::to_string(number), STB_LOCAL,
						     STT_NOTYPE, 0, SHN_UNDEF, 0, 0 });
		return it->second;
	};
	auto take_symbol = [&](size_t index, size_t section, uint64_t value) {
		Symbol s = from.symbols[index];
		s.name = renamed(s.name, file);
		s.section = section;
		s.value = value;
		if (file.replaced.contains(from.symbols[index].name))
			s.bind = STB_GLOBAL;
		return symbols[index] = out.add(std::move(s));
	};
	auto function = [&](size_t index) {
		if (auto it = symbols.find(index); it != symbols.end())
			return it->second;
		const Symbol &s = from.symbols[index];
		for (size_t other : file.patched.inside[s.section])
			if (whole(from.symbols[other].name) != whole(s.name))
				die("%s: %s shares %s with others", file.name.c_str(),
				    s.name.c_str(), from.sections[s.section].name.c_str());
		return take_symbol(index, take_whole(s.section), s.value);
	};
	// A variable of the kernel's, or one of our own.
	auto variable = [&](size_t index) {
		if (auto it = symbols.find(index); it != symbols.end())
			return it->second;
		const Symbol &s = from.symbols[index];
		string base = unnumbered(s.name);
		bool own = std::ranges::find(OWN, base) != std::end(OWN);
		set<string> theirs;
		for (const Symbol &t : file.plain.symbols)
			if (t.type == STT_OBJECT && t.section != SHN_UNDEF && !own &&
			    (t.name == s.name || (base != s.name && unnumbered(t.name) == base)))
				theirs.insert(t.name);
		if (theirs.size() > 1)
			die("%s: which %s of the kernel's is it?", file.name.c_str(),
			    s.name.c_str());
		if (theirs.size() == 1)
			return symbols[index] = kernels(*theirs.begin());
		if (from.sections[s.section].merged())
			return take_symbol(index, take_whole(s.section), s.value);
		return take_symbol(index, take(s.section, s.value, s.size), 0);
	};

	convert = [&](const Section &section, Relocation r) -> Relocation {
		Place to = file.patched.place(section, r);
		if (to.symbol == NONE) {
			size_t there = from.symbols[r.symbol].section;
			auto size = file.patched.entry_size.find(there);
			if (size == file.patched.entry_size.end())
				return { r.offset, r.type, section_symbol(there), to.offset };
			size_t number = (to.offset + Code::bias(section, r)) / size->second;
			return { r.offset, r.type, entry_symbol(there, number),
				 to.offset - int64_t(number * size->second) };
		}
		const Symbol &s = from.symbols[to.symbol];
		size_t symbol;
		if (!table_of(section) && !is_jump(section, r) && s.type != STT_OBJECT &&
		    to.offset + Code::bias(section, r) == 0)
			pointed(s.name);
		if (s.section == SHN_UNDEF) {
			auto home = std::ranges::find_if(files, [&](const File &other) {
				return other.copied.contains(s.name) ||
				       other.added.contains(s.name) ||
				       std::ranges::any_of(other.patched.object.symbols,
							   [&](const Symbol &t) {
								   return t.name == s.name &&
									  t.section != SHN_UNDEF &&
									  t.type == STT_OBJECT &&
									  !other.address(s.name);
							   });
			});
			symbol = home != files.end() ? undefined_symbol(renamed(s.name, *home))
						     : kernels(s.name);
		} else if (s.section >= SHN_LORESERVE) {
			die("%s: %s is no place", file.name.c_str(), s.name.c_str());
		} else if (!from.sections[s.section].code()) {
			symbol = variable(to.symbol);
		} else {
			string name = whole(s.name);
			if (!file.kept(name))
				symbol = kernels(s.name);
			else if (is_jump(section, r) && from.symbols[r.symbol].type == STT_SECTION)
				// By name it is a call, in objtool's eyes, even if to the unlikely part.
				return { r.offset, r.type, section_symbol(s.section), r.addend };
			else if (table_of(section) || is_jump(section, r) ||
				 to.offset + Code::bias(section, r) != 0)
				symbol = function(to.symbol);
			else if (file.stock.functions.contains(name))
				symbol = kernels(name);
			else
				die("%s: the address of %s, which is new, would be left in the "
				    "kernel",
				    file.name.c_str(), s.name.c_str());
		}
		return { r.offset, r.type, symbol, to.offset };
	};
	auto work = [&] {
		while (!todo.empty()) {
			auto next = todo.back();
			todo.pop_back();
			next();
		}
	};

	for (const set<string> &functions : { file.replaced, file.copied, file.added })
		for (const string &name : functions)
			for (size_t i : file.patched.functions.at(name))
				function(i);
	work();

	// The entries of the tables for the code that was taken.
	map<size_t, size_t> tables;
	for (auto [index, taken] : map(sections)) {
		auto entries = file.patched.entries.find(index);
		if (entries == file.patched.entries.end() || !from.sections[index].code())
			continue;
		for (auto &[offset, entry] : entries->second) {
			const Section &table = from.sections[entry.section];
			if (TABLES[entry.table].name == RUNTIME)
				die("%s: %s has an entry in %s, which a module cannot have",
				    file.name.c_str(), from.sections[index].name.c_str(),
				    table.name.c_str());
			size_t size = entry.size;
			auto extend = [&](size_t source, size_t size) -> size_t {
				auto [it, added] = tables.try_emplace(source, 0);
				if (added) {
					Section empty = from.sections[source];
					empty.bytes.clear();
					empty.relocations.clear();
					it->second = out.add(std::move(empty));
				}
				vector<unsigned char> &bytes = out.sections[it->second].bytes;
				auto start =
					from.sections[source].bytes.begin() + entry.number * size;
				bytes.insert(bytes.end(), start, start + size);
				return it->second;
			};
			auto [replacement, start, length] = file.patched.replacement(entry);
			if (replacement)
				replacements.insert({ start, length });
			size_t to = extend(entry.section, size);
			size_t at = out.sections[to].bytes.size() - size;
			if (auto it = entry_symbols.find({ entry.section, entry.number });
			    it != entry_symbols.end()) {
				out.symbols[it->second].section = to;
				out.symbols[it->second].value = at;
			}
			for (Relocation r : file.patched.relocations(entry)) {
				uint64_t inside = r.offset - entry.start();
				// objtool wants the section, which was taken as it is.
				if (table.name.starts_with(".discard."))
					r = { 0, r.type, section_symbol(index), (int64_t)offset };
				else
					r = convert(table, r);
				r.offset = at + inside;
				out.sections[to].relocations.push_back(r);
			}
			if (table.name == ".orc_unwind_ip") {
				auto orc = std::ranges::find(from.sections, ".orc_unwind",
							     &Section::name);
				extend(orc - from.sections.begin(), ORC_ENTRY);
			}
		}
	}
	work();
	for (auto &[entry, symbol] : entry_symbols)
		if (out.symbols[symbol].section == SHN_UNDEF)
			die("%s: an entry of %s is used by code that it is not about",
			    file.name.c_str(), from.sections[entry.first].name.c_str());
	return out;
}
} // namespace

int main(int count, char **arguments)
{
	if (count != 9)
		die("usage: cut VMLINUX SYMBOLS MODULE.SYMVERS PLAN PLAIN STOCK PATCHED OUT");
	Kernel kernel(arguments[1]);
	vector<Kernel_symbol> symbols;
	std::ifstream in(arguments[2]);
	Kernel_symbol symbol;
	while (in >> std::hex >> symbol.address >> symbol.type >> symbol.name)
		symbols.push_back(symbol);
	if (symbols.empty())
		die("%s has no symbols", arguments[2]);
	kernel.use(symbols);

	set<string> exported;
	in = std::ifstream(arguments[3]);
	for (string line; std::getline(in, line);) {
		std::istringstream words(line);
		string crc, name, module, kind, space;
		// What has a name space of its own is not for all modules.
		if (words >> crc >> name >> module >> kind && module == "vmlinux" &&
		    !(words >> space))
			exported.insert(name);
	}
	if (exported.empty())
		die("%s has nothing that the kernel exports", arguments[3]);
	Plan plan(arguments[4]);

	vector<File> files;
	for (const string &file : plan.objects) {
		auto in = [&](int dir) { return string(arguments[dir]) + '/' + file; };
		files.push_back(
			{ file, Object(in(5)), Code(in(6)), Code(in(7)), {}, {}, {}, {}, {}, {} });
		files.back().place(kernel);
	}
	Cut cut(kernel, plan, exported, files);
	cut.select();
	cut.check_calls(symbols);

	string out = arguments[8];
	std::ofstream functions(out + "/functions.h");
	auto list = [](const char *what, const string &file, const set<string> &names) {
		if (names.empty())
			return;
		std::cout << file << ": " << what << ':';
		for (const string &name : names)
			std::cout << ' ' << name;
		std::cout << '\n';
	};
	for (const File &file : files) {
		cut.make(file).write(out + "/" + file.name);
		set<string> kept;
		std::ranges::set_intersection(file.changed, plan.keep,
					      std::inserter(kept, kept.end()));
		list("replaced", file.name, file.replaced);
		list("copied", file.name, file.copied);
		list("new", file.name, file.added);
		list("kept as it is", file.name, kept);
		for (const string &function : file.replaced)
			functions << "REPLACE(" << function << ", " << cut.position(file, function)
				  << ")\n";
	}
	if (!functions.flush())
		die("cannot write %s/functions.h", out.c_str());
}
