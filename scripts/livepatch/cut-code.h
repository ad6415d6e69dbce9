// SPDX-License-Identifier: GPL-2.0
// An object by functions: what each consists of, in terms that hold in every compilation of its
// file.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>
#include "cut-tables.h"
#include "elf.h"

constexpr size_t NONE = -1;

// The compiler numbers what is static in a function: "name.12".
std::string unnumbered(const std::string &name);
// Of variables that only a number tells apart: "name.". Another than that of a variable "name".
std::string group(const std::string &name);
// The unlikely part of a function: "name.cold"; older compilers number that.
std::string whole(const std::string &name);
// Calls included, conditional ones too.
bool is_jump(const Section &section, const Relocation &r);

struct Piece;

// What a relocation leads to.
struct Reference {
	uint64_t offset;
	uint32_t type;
	std::string to; // its name, without the compiler's number; or a string
	int64_t addend;
	std::vector<Piece> value; // of a constant that has no name but a number

	bool operator==(const Reference &) const;
};

// Bytes, 0 where a reference is filled in.
struct Piece {
	std::vector<unsigned char> bytes;
	std::vector<Reference> references;

	bool operator==(const Piece &) const = default;
};

inline bool Reference::operator==(const Reference &) const = default;

// An entry of a table for a place in the code, @at from the start of it.
struct Entry_piece {
	std::string_view table;
	uint64_t at;
	Piece entry, replacement;

	bool operator==(const Entry_piece &) const = default;
};

// All that makes a function what it is, but for where it and others are.
struct Function {
	struct Part {
		Piece code;
		std::vector<Entry_piece> entries;

		bool operator==(const Part &) const = default;
	};
	std::vector<Part> parts; // the unlikely one last

	bool operator==(const Function &) const = default;
	// The first thing in which it differs from @stock; empty if there is none.
	std::string difference(const Function &stock) const;
};

class Code {
public:
	struct Place {
		size_t symbol; // index, or NONE: a section that has no symbols
		int64_t offset;
	};
	// Of a table: the one for @offset in the code that it is filed under.
	struct Entry {
		const Table *table;
		size_t section, number, size;
		uint64_t offset;

		uint64_t start() const { return number * size; }
	};
	// Bytes of a section.
	struct Range {
		size_t section;
		uint64_t start, size;
	};

	Object object;
	std::map<std::string, std::vector<size_t>>
		functions; // the symbols of each, as Function::parts
	std::map<size_t, std::vector<Entry>> entries; // by section with code
	std::map<size_t, size_t> entry_size; // by section with entries
	std::vector<std::vector<size_t>> inside; // by section: its symbols
	std::map<std::string, std::vector<size_t>> variables; // by group()

	explicit Code(const std::string &path);

	const Symbol &symbol(size_t index) const { return object.symbols[index]; }
	const Section &section(size_t index) const { return object.sections[index]; }
	bool defines(size_t index) const
	{
		return symbol(index).section != SHN_UNDEF && symbol(index).section < SHN_LORESERVE;
	}
	// The symbol of that name which it defines.
	std::optional<size_t> find(const std::string &name) const;
	// The symbol of the function that @index is a part of, or @index.
	size_t main_part(size_t index) const;
	Range range(size_t index) const
	{
		return { symbol(index).section, symbol(index).value, symbol(index).size };
	}

	std::span<const Relocation> relocations(const Range &range) const;
	Place place(const Section &section, const Relocation &r) const;
	// Instructions count from their end.
	static int64_t bias(const Section &section, const Relocation &r);
	// Of an entry of .altinstructions: the instructions to put there.
	std::optional<Range> replacement(const Entry &entry) const;
	bool traced(size_t function) const;
	Function function(const std::string &name) const;
	// What a relocation to a merged section leads to: a string with its end, or a constant.
	std::string constant(const Section &section, const Relocation &r) const;
	Piece piece(const Range &range, const Table *table = nullptr) const;

private:
	// Of which a function may have its own, and which tells nothing by its name.
	bool is_constant(size_t index) const;
	void read_table(size_t index, const Table &table);
	Reference reference(const Section &section, const Relocation &r, uint64_t start) const;
};
