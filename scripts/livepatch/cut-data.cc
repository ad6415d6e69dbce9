// SPDX-License-Identifier: GPL-2.0
// The live patch does not change the kernel's data, so PATCHED must have the same data as STOCK.
#include <algorithm>
#include "cut.h"

using std::map, std::string, std::vector;

// @name without line numbers, and without the numbers that the compiler appends.
static string without_digits(string name)
{
	std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
	return name;
}

namespace {
// A section that is compared as a whole, not by its variables.
struct Whole_section {
	Piece piece;
	map<uint64_t, std::multiset<string>> names; // of its symbols, by offset

	bool operator==(const Whole_section &) const = default;
};
} // namespace

// Whether the section has relocations, or bytes other than 0, outside its variables.
static bool has_nameless(const Code &code, size_t index)
{
	const Section &section = code.section(index);
	auto named = [&](uint64_t at) {
		return std::ranges::any_of(code.inside[index], [&](size_t i) {
			return at - code.symbol(i).value < code.symbol(i).size;
		});
	};
	for (const Relocation &r : section.relocations)
		if (!named(r.offset))
			return true;
	for (uint64_t at = 0; at < section.bytes.size(); at++)
		if (section.bytes[at] && !named(at))
			return true;
	return false;
}

// The sections to compare as a whole, by name: those that the kernel's link collects or, if
// @collected is false, other sections with data outside their variables.
static map<string, vector<Whole_section>> whole_sections(const Code &code, bool collected)
{
	map<string, vector<Whole_section>> found;
	for (size_t i = 1; i < code.object.sections.size(); i++) {
		const Section &section = code.section(i);
		if (!is_data(section) || section.bytes.empty() ||
		    is_collected(section) != collected || (!collected && !has_nameless(code, i)))
			continue;
		Whole_section whole{ code.piece({ i, 0, section.bytes.size() }), {} };
		for (Reference &reference : whole.piece.references)
			reference.to = without_digits(reference.to);
		for (size_t index : code.inside[i])
			whole.names[code.symbol(index).value].insert(
				without_digits(code.symbol(index).name));
		found[unnumbered(section.name)].push_back(std::move(whole));
	}
	return found;
}

// The first difference between @ours and @theirs, which are not equal.
static string difference(const Piece &ours, const Piece &theirs)
{
	if (ours.bytes.size() != theirs.bytes.size())
		return "size";
	for (size_t i = 0; i < ours.references.size() || i < theirs.references.size(); i++) {
		if (i == theirs.references.size())
			return "it points to " + ours.references[i].to;
		if (i == ours.references.size())
			return "it does not point to " + theirs.references[i].to;
		if (ours.references[i] != theirs.references[i])
			return "it points to " + ours.references[i].to + ", not to " +
			       theirs.references[i].to;
	}
	auto [our, their] = std::ranges::mismatch(ours.bytes, theirs.bytes);
	return "byte " + std::to_string(our - ours.bytes.begin());
}

// The module has the entries for its code in the tables that cut knows. No other table may have
// entries for places in the code; pointers to functions are allowed.
static void check_tables(const File &file, const Code &code)
{
	for (const Section &section : code.object.sections) {
		if (!is_data(section) || !is_collected(section))
			continue;
		for (const Relocation &r : section.relocations) {
			Code::Place to = code.place(section, r);
			const Symbol &s = code.symbol(to.symbol == NONE ? r.symbol : to.symbol);
			bool start = to.symbol != NONE && code.main_part(to.symbol) == to.symbol &&
				     to.offset == 0;
			if (code.defines(r.symbol) && code.section(s.section).code() && !start)
				die("%s: section %s has an entry for a place in %s, and cut does "
				    "not know this table",
				    file.name.c_str(), section.name.c_str(),
				    to.symbol == NONE ? code.section(s.section).name.c_str()
						      : s.name.c_str());
		}
	}
}

void Cut::check_data() const
{
	for (const File &file : files) {
		check_tables(file, file.stock);
		check_tables(file, file.patched);
		check_variables(file);
		for (bool collected : { true, false }) {
			auto ours = whole_sections(file.patched, collected),
			     theirs = whole_sections(file.stock, collected);
			for (const auto *these : { &ours, &theirs })
				for (auto &[name, whole] : *these)
					if ((collected ||
					     (ours.contains(name) && theirs.contains(name))) &&
					    ours[name] != theirs[name] && !plan.keep.contains(name))
						die("%s: section %s differs, but the live patch "
						    "does not change data; to accept that, add "
						    "\"keep %s\" and the reason to the plan",
						    file.name.c_str(), name.c_str(), name.c_str());
		}
	}
}

void Cut::check_variables(const File &file) const
{
	for (auto &[group, theirs] : file.stock.variables) {
		auto ours = file.patched.variables.find(group);
		string base = unnumbered(file.stock.symbol(theirs[0]).name);
		if (ours == file.patched.variables.end() || is_private(base) ||
		    plan.keep.contains(base) ||
		    is_collected(file.stock.section(file.stock.symbol(theirs[0]).section)))
			continue;
		vector<Piece> values;
		for (size_t index : ours->second)
			values.push_back(file.patched.piece(file.patched.range(index)));
		for (size_t index : theirs) {
			Piece value = file.stock.piece(file.stock.range(index));
			auto same = std::ranges::find(values, value);
			if (same == values.end())
				die("%s: %s differs (%s), but the live patch does not change data; "
				    "to accept that, add \"keep %s\" and the reason to the plan",
				    file.name.c_str(), file.stock.symbol(index).name.c_str(),
				    difference(values[0], value).c_str(), base.c_str());
			values.erase(same);
		}
	}
}
