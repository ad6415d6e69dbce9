// SPDX-License-Identifier: GPL-2.0
// Writes the object for the module: replaced, copied and new functions, and their table entries.
#include <algorithm>
#include "cut.h"

using std::map, std::pair, std::set, std::string, std::vector;

constexpr unsigned char NOP = 0x90;

class Writer {
	const Cut &cut;
	File &file;
	const Code &code;
	const Object &from;
	Object out;

	// Bytes of @from that were copied to section @to of @out, but not their relocations yet.
	struct Taken {
		Code::Range range;
		size_t to;
	};
	vector<Taken> taken;
	// Sections and symbols of @out, by the index or name in @from.
	map<size_t, size_t> sections, section_symbols, symbols, tables;
	map<pair<size_t, size_t>, size_t> entry_symbols; // by section and number of the entry
	map<string, size_t> undefined;
	// Start and size in REPLACEMENTS of the replacement instructions for the code in @out. The
	// section also has those for the rest of the file.
	set<pair<uint64_t, uint64_t>> replacements;

public:
	Writer(const Cut &cut, File &file)
		: cut(cut)
		, file(file)
		, code(file.patched)
		, from(file.patched.object)
	{
	}

	Object write();

private:
	void take_functions();
	void find_replacements();
	void convert_taken();
	void copy_tables();
	void copy_entry(size_t index, const Code::Entry &entry);
	void check_entries() const;

	size_t take(const Code::Range &range);
	size_t take_whole(size_t index);
	size_t extend_table(size_t index, size_t number, size_t size);
	bool wanted(const Section &section, uint64_t offset) const;

	Relocation convert(const Section &section, const Relocation &r);
	size_t undefined_symbol(const string &name);
	size_t kernel_symbol(const Id &id);
	size_t section_symbol(size_t index);
	size_t entry_symbol(size_t section, size_t number);
	size_t take_symbol(size_t index, size_t section, uint64_t value);
	size_t function(size_t index);
	size_t variable(size_t index);
	size_t other_files_symbol(const Id &id, bool pointer);
	size_t kernel_code(const Id &id, bool pointer);
};

Object Cut::write(File &file) const
{
	return Writer(*this, file).write();
}

Object Writer::write()
{
	take_functions(); // all code of @out
	find_replacements();
	convert_taken(); // also takes the data that the code uses
	copy_tables();
	convert_taken();
	check_entries();
	return std::move(out);
}

void Writer::take_functions()
{
	for (Action action : { Action::REPLACE, Action::COPY, Action::ADD })
		for (const string &name : file.functions_with(action))
			for (size_t part : code.functions.at(name))
				function(part);
}

void Writer::find_replacements()
{
	for (auto [index, to] : sections)
		if (auto entries = code.entries.find(index); entries != code.entries.end())
			for (const Code::Entry &entry : entries->second)
				if (auto there = code.replacement(entry))
					replacements.insert({ there->start, there->size });
}

bool Writer::wanted(const Section &section, uint64_t offset) const
{
	return section.name != REPLACEMENTS || std::ranges::any_of(replacements, [&](auto &r) {
		       return offset >= r.first && offset < r.first + r.second;
	       });
}

size_t Writer::take(const Code::Range &range)
{
	const Section &section = from.sections[range.section];
	Section copy = section;
	copy.bytes.assign(section.bytes.begin() + range.start,
			  section.bytes.begin() + range.start + range.size);
	copy.relocations.clear();
	size_t to = out.add(std::move(copy));
	taken.push_back({ range, to });
	return to;
}

size_t Writer::take_whole(size_t index)
{
	auto [it, added] = sections.try_emplace(index, 0);
	if (added)
		it->second = take({ index, 0, from.sections[index].bytes.size() });
	return it->second;
}

// Converts the relocations of everything that was taken, including what is taken meanwhile.
void Writer::convert_taken()
{
	while (!taken.empty()) {
		auto [range, to] = taken.back();
		taken.pop_back();
		const Section &section = from.sections[range.section];
		for (const Relocation &r : code.relocations(range))
			if (wanted(section, r.offset)) {
				Relocation converted = convert(section, r);
				converted.offset -= range.start;
				out.sections[to].relocations.push_back(converted);
			}
		// objtool decodes all replacement instructions, but the unused ones are invalid
		// without their relocations. Overwrite them.
		for (uint64_t i = 0; i < range.size; i++)
			if (!wanted(section, range.start + i))
				out.sections[to].bytes[i] = NOP;
	}
}

// Copies the table entries for the code that was taken.
void Writer::copy_tables()
{
	for (auto [index, to] : map(sections)) {
		auto entries = code.entries.find(index);
		if (entries == code.entries.end() || !from.sections[index].code())
			continue;
		for (const Code::Entry &entry : entries->second)
			copy_entry(index, entry);
	}
}

void Writer::copy_entry(size_t index, const Code::Entry &entry)
{
	const Section &table = from.sections[entry.section];
	if (entry.table->prefix)
		die("%s: %s has an entry in %s, which modules do not support", file.name.c_str(),
		    from.sections[index].name.c_str(), table.name.c_str());
	size_t to = extend_table(entry.section, entry.number, entry.size);
	size_t at = out.sections[to].bytes.size() - entry.size;
	if (auto it = entry_symbols.find({ entry.section, entry.number });
	    it != entry_symbols.end()) {
		out.symbols[it->second].section = to;
		out.symbols[it->second].value = at;
	}
	for (Relocation r : code.relocations({ entry.section, entry.start(), entry.size })) {
		uint64_t inside = r.offset - entry.start();
		// objtool requires a reference to the section. It was taken as a whole, so offsets
		// are the same.
		if (table.name.starts_with(DISCARDED))
			r = { 0, r.type, section_symbol(index), (int64_t)entry.offset };
		else
			r = convert(table, r);
		r.offset = at + inside;
		out.sections[to].relocations.push_back(r);
	}
	if (table.name == ORC_IP) {
		auto orc = std::ranges::find(from.sections, ORC, &Section::name);
		if (orc == from.sections.end())
			die("%s: there is a section %s, but no %s", file.name.c_str(),
			    table.name.c_str(), ORC.data());
		extend_table(orc - from.sections.begin(), entry.number, ORC_ENTRY);
	}
}

size_t Writer::extend_table(size_t index, size_t number, size_t size)
{
	const Section &table = from.sections[index];
	auto [it, added] = tables.try_emplace(index, 0);
	if (added) {
		Section empty = table;
		empty.bytes.clear();
		empty.relocations.clear();
		it->second = out.add(std::move(empty));
	}
	if (table.bytes.size() < (number + 1) * size)
		die("%s: section %s has an unknown format: it ends before entry %zu of %zu bytes",
		    file.name.c_str(), table.name.c_str(), number, size);
	vector<unsigned char> &bytes = out.sections[it->second].bytes;
	auto start = table.bytes.begin() + number * size;
	bytes.insert(bytes.end(), start, start + size);
	return it->second;
}

void Writer::check_entries() const
{
	for (auto &[entry, symbol] : entry_symbols)
		if (out.symbols[symbol].section == SHN_UNDEF)
			die("%s: entry %zu of section %s is for code that is not in the module, "
			    "but the module uses it",
			    file.name.c_str(), entry.second,
			    from.sections[entry.first].name.c_str());
}

size_t Writer::undefined_symbol(const string &name)
{
	auto [it, added] = undefined.try_emplace(name, 0);
	if (added)
		it->second = out.add(Symbol{ name, STB_GLOBAL, STT_NOTYPE, 0, SHN_UNDEF, 0, 0 });
	return it->second;
}

size_t Writer::kernel_symbol(const Id &id)
{
	Location location = cut.locate(id);
	if (auto it = cut.exported.find(location.name);
	    !location.local && it != cut.exported.end() && it->second)
		return undefined_symbol(location.name);
	return undefined_symbol(".klp.sym.vmlinux." + location.name + ',' +
				std::to_string(cut.position(id)));
}

// Takes the whole section, and returns its section symbol.
size_t Writer::section_symbol(size_t index)
{
	const Section &section = from.sections[index];
	if (section.flags & SHF_WRITE && !section.code() && !is_ubsan(section))
		die("%s: a function of the module uses data in section %s that has no symbol, so "
		    "cut cannot find it in the kernel",
		    file.name.c_str(), section.name.c_str());
	auto [it, added] = section_symbols.try_emplace(index, 0);
	if (added)
		it->second = out.add(
			Symbol{ "", STB_LOCAL, STT_SECTION, 0, (uint16_t)take_whole(index), 0, 0 });
	return it->second;
}

// A symbol for the table entry whose address WARN() passes to its handler. copy_entry() defines it.
size_t Writer::entry_symbol(size_t section, size_t number)
{
	auto [it, added] = entry_symbols.try_emplace({ section, number }, 0);
	if (added)
		it->second = out.add(Symbol{ "entry." + std::to_string(number), STB_LOCAL,
					     STT_NOTYPE, 0, SHN_UNDEF, 0, 0 });
	return it->second;
}

// In the module, a replaced or copied function must not have the name of the kernel's function.
static string renamed(const string &name, Action action)
{
	return action == Action::REPLACE || action == Action::COPY ? "livepatch_" + name : name;
}

size_t Writer::take_symbol(size_t index, size_t section, uint64_t value)
{
	Symbol s = from.symbols[index];
	if (s.type == STT_FUNC)
		s.name = renamed(s.name, file.action(index));
	if (s.type == STT_FUNC && code.main_part(index) == index &&
	    file.action(index) == Action::REPLACE)
		s.bind = STB_GLOBAL;
	s.section = section;
	s.value = value;
	return symbols[index] = out.add(std::move(s));
}

size_t Writer::function(size_t index)
{
	if (auto it = symbols.find(index); it != symbols.end())
		return it->second;
	const Symbol &s = from.symbols[index];
	for (size_t other : code.inside[s.section])
		if (without_cold(from.symbols[other].name) != without_cold(s.name))
			die("%s: %s shares section %s with %s, so it cannot be cut out",
			    file.name.c_str(), s.name.c_str(),
			    from.sections[s.section].name.c_str(),
			    from.symbols[other].name.c_str());
	return take_symbol(index, take_whole(s.section), s.value);
}

// The kernel's variable, or the module's own copy, see File::counterpart().
size_t Writer::variable(size_t index)
{
	if (auto it = symbols.find(index); it != symbols.end())
		return it->second;
	const Symbol &s = from.symbols[index];
	if (from.sections[s.section].merged())
		return take_symbol(index, take_whole(s.section), s.value);
	if (file.counterpart(index))
		return symbols[index] = kernel_symbol({ &file, index });
	return take_symbol(index, take(code.range(index)), 0);
}

// The symbol for a function or variable that another file of the plan defines. A @pointer to a
// function is always to the kernel's function.
size_t Writer::other_files_symbol(const Id &id, bool pointer)
{
	if (id.function() ? !pointer && (id.action() == Action::COPY || id.action() == Action::ADD)
			  : !id.file->counterpart(id.symbol))
		return undefined_symbol(renamed(id.name(), id.action()));
	return kernel_code(id, pointer);
}

// The kernel's symbol for a function, or for a variable of another file. A @pointer may be stored
// in the kernel's data, where it stays when the module is unloaded.
size_t Writer::kernel_code(const Id &id, bool pointer)
{
	if (pointer && id.action() == Action::ADD)
		die("%s: the address of %s, which is new, would be left in the kernel",
		    file.name.c_str(), id.name().c_str());
	if (pointer && id.action() == Action::COPY)
		die("%s: the address of %s is taken, but %s is copied: the pointer would lead to "
		    "the kernel's unpatched function",
		    file.name.c_str(), id.name().c_str(), id.name().c_str());
	uint64_t address = cut.locate(id).address;
	if (pointer && cut.kernel.is_code(address) && !cut.kernel.allows_indirect_calls(address))
		die("%s: the address of %s is taken, but the kernel has no pointer to it, so an "
		    "indirect call may fault (IBT)",
		    file.name.c_str(), id.name().c_str());
	return kernel_symbol(id);
}

// Converts a relocation of @from to one of @out. Takes the data to which it refers.
Relocation Writer::convert(const Section &section, const Relocation &r)
{
	Code::Place to = code.place(section, r);
	int64_t bias = Code::bias(section, r);
	if (to.symbol == NONE) {
		size_t there = from.symbols[r.symbol].section;
		auto size = code.entry_size.find(there);
		if (size == code.entry_size.end())
			return { r.offset, r.type, section_symbol(there), to.offset };
		size_t number = (to.offset + bias) / size->second;
		return { r.offset, r.type, entry_symbol(there, number),
			 to.offset - int64_t(number * size->second) };
	}
	const Symbol &s = from.symbols[to.symbol];
	bool pointer = !table_of(section) && !is_jump(section, r) && to.offset + bias == 0;
	size_t symbol;
	if (s.section >= SHN_LORESERVE)
		die("%s: section %s refers to %s, which is in no section: absolute and common "
		    "symbols are not supported",
		    file.name.c_str(), section.name.c_str(), s.name.c_str());
	if (code.defines(to.symbol) && !from.sections[s.section].code())
		symbol = variable(to.symbol);
	else if (Id id = cut.resolve(file, to.symbol); id.file != &file)
		symbol = other_files_symbol(id, pointer);
	else if (pointer || file.action(to.symbol) == Action::KEEP)
		symbol = kernel_code({ &file, to.symbol }, pointer);
	// objtool takes a jump to a named function for a call, even if it is to the unlikely part,
	// so refer to the section, as the compiler does.
	else if (is_jump(section, r) && from.symbols[r.symbol].type == STT_SECTION)
		return { r.offset, r.type, section_symbol(s.section), r.addend };
	else
		symbol = function(to.symbol);
	return { r.offset, r.type, symbol, to.offset };
}
