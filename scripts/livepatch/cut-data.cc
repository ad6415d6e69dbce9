// SPDX-License-Identifier: GPL-2.0
// Data stays as the kernel has it, so PATCHED must not have other than STOCK.
#include <algorithm>
#include "cut.h"

using std::map, std::string, std::vector;

// The name without what counts lines and symbols of the source.
static string without_digits(string name)
{
	std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
	return name;
}

namespace {
// A section of which not the variables matter, but all.
struct Whole {
	Piece piece;
	map<uint64_t, std::multiset<string>> names;

	bool operator==(const Whole &) const = default;
};
} // namespace

// Whether the section has something in it that is none of its variables.
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

// Those of @code that the kernel's link gathers, or the others that variables do not make up, by
// name.
static map<string, vector<Whole>> wholes(const Code &code, bool gathered)
{
	map<string, vector<Whole>> found;
	for (size_t i = 1; i < code.object.sections.size(); i++) {
		const Section &section = code.section(i);
		if (!is_data(section) || section.bytes.empty() ||
		    is_gathered(section) != gathered || (!gathered && !has_nameless(code, i)))
			continue;
		Whole whole{ code.piece({ i, 0, section.bytes.size() }), {} };
		for (Reference &reference : whole.piece.references)
			reference.to = without_digits(reference.to);
		for (size_t index : code.inside[i])
			whole.names[code.symbol(index).value].insert(
				without_digits(code.symbol(index).name));
		found[unnumbered(section.name)].push_back(std::move(whole));
	}
	return found;
}

// How @ours differs from @theirs, which it is not.
static string difference(const Piece &ours, const Piece &theirs)
{
	if (ours.bytes.size() != theirs.bytes.size())
		return "its size";
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
	return "its byte " + std::to_string(our - ours.bytes.begin());
}

// A function that is replaced takes along its entries of the tables that are known. Others must
// have none of it.
static void check_tables(const File &file, const Code &code)
{
	for (const Section &section : code.object.sections) {
		if (!is_data(section) || !is_gathered(section))
			continue;
		for (const Relocation &r : section.relocations) {
			Code::Place to = code.place(section, r);
			const Symbol &s = code.symbol(to.symbol == NONE ? r.symbol : to.symbol);
			bool start = to.symbol != NONE && code.main_part(to.symbol) == to.symbol &&
				     to.offset == 0;
			if (code.defines(r.symbol) && code.section(s.section).code() && !start)
				die("%s: %s has an entry for a place in %s, and is of a kind that "
				    "is not known here",
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
		for (bool gathered : { true, false }) {
			map<string, vector<Whole>> ours = wholes(file.patched, gathered),
						   theirs = wholes(file.stock, gathered);
			for (const auto *these : { &ours, &theirs })
				for (auto &[name, whole] : *these)
					if ((gathered ||
					     (ours.contains(name) && theirs.contains(name))) &&
					    ours[name] != theirs[name] && !plan.keep.contains(name))
						die("%s: %s differs, and stays as the kernel has "
						    "it; say \"keep %s\" in the plan if that will "
						    "do, and why",
						    file.name.c_str(), name.c_str(), name.c_str());
		}
	}
}

void Cut::check_variables(const File &file) const
{
	for (auto &[group, theirs] : file.stock.variables) {
		auto ours = file.patched.variables.find(group);
		string base = unnumbered(file.stock.symbol(theirs[0]).name);
		if (ours == file.patched.variables.end() || is_own(base) ||
		    plan.keep.contains(base) ||
		    is_gathered(file.stock.section(file.stock.symbol(theirs[0]).section)))
			continue;
		vector<Piece> values;
		for (size_t index : ours->second)
			values.push_back(file.patched.piece(file.patched.range(index)));
		for (size_t index : theirs) {
			Piece value = file.stock.piece(file.stock.range(index));
			auto same = std::ranges::find(values, value);
			if (same == values.end())
				die("%s: %s differs (%s), and stays as the kernel has it; say "
				    "\"keep %s\" in the plan if that will do, and why",
				    file.name.c_str(), file.stock.symbol(index).name.c_str(),
				    difference(values[0], value).c_str(), base.c_str());
			values.erase(same);
		}
	}
}
