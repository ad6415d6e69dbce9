// SPDX-License-Identifier: GPL-2.0
// The functions of an object, described so that two compilations of the same source can be
// compared.
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

// @name without the number that the compiler appends to a function's static variables: "name.12".
std::string unnumbered(const std::string &name);
// The common key of variables "name.12", "name.13" and so on: "name.". For a variable without a
// number it is the name.
std::string group(const std::string &name);
// The name of the function that has the unlikely part "name.cold", or "name.cold.12" with older
// compilers.
std::string without_cold(const std::string &name);
// Whether @r is the target of a jump, conditional or not, or of a call.
bool is_jump(const Section &section, const Relocation &r);

struct Piece;

// The target of a relocation.
struct Reference {
	uint64_t offset;
	uint32_t type;
	std::string to; // its name, without the compiler's number; or a string literal
	int64_t addend;
	std::vector<Piece> value; // of a constant that the name does not identify

	bool operator==(const Reference &) const;
};

// A range of bytes. Those that a relocation fills in are 0.
struct Piece {
	std::vector<unsigned char> bytes;
	std::vector<Reference> references;

	bool operator==(const Piece &) const = default;
};

inline bool Reference::operator==(const Reference &) const = default;

// A table's entry for the place at offset @at of the code.
struct Entry_piece {
	std::string_view table;
	uint64_t at;
	Piece entry, replacement; // the latter only in .altinstructions

	bool operator==(const Entry_piece &) const = default;
};

// A function without addresses: its own, and those of what it refers to.
struct Function {
	struct Part {
		Piece code;
		std::vector<Entry_piece> entries;

		bool operator==(const Part &) const = default;
	};
	std::vector<Part> parts; // the unlikely one last

	bool operator==(const Function &) const = default;
	// The first difference from @stock, as text; empty if there is none.
	std::string difference(const Function &stock) const;
};

class Code {
public:
	struct Place {
		size_t symbol; // index, or NONE in merged sections and in those without symbols
		int64_t offset;
	};
	// A table's entry for the place at @offset of a section with code.
	struct Entry {
		const Table *table;
		size_t section, number, size;
		uint64_t offset;

		uint64_t start() const { return number * size; }
	};
	// A range of bytes of a section.
	struct Range {
		size_t section;
		uint64_t start, size;
	};

	Object object;
	std::map<std::string, std::vector<size_t>>
		functions; // by name: the symbols of the parts, in the order of Function::parts
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
	// The symbol with this name that the object defines.
	std::optional<size_t> find(const std::string &name) const;
	// The main part of the function to which the symbol @index belongs; for others, @index.
	size_t main_part(size_t index) const;
	Range range(size_t index) const
	{
		return { symbol(index).section, symbol(index).value, symbol(index).size };
	}

	std::span<const Relocation> relocations(const Range &range) const;
	// The symbol to which @r of @section refers, and the offset from that symbol.
	Place place(const Section &section, const Relocation &r) const;
	// The distance from the address field to the end of its instruction, from which the CPU
	// counts; 0 if @r is not relative to an instruction.
	static int64_t bias(const Section &section, const Relocation &r);
	// The replacement instructions of an entry of .altinstructions.
	std::optional<Range> replacement(const Entry &entry) const;
	bool traced(size_t function) const;
	Function function(const std::string &name) const;
	// The contents of a merged section to which @r refers: a string with its NUL, or a
	// constant.
	std::string constant(const Section &section, const Relocation &r) const;
	Piece piece(const Range &range, const Table *table = nullptr) const;

private:
	// Whether the symbol is a constant whose name does not identify it, see is_private(). It is
	// compared by value.
	bool is_constant(size_t index) const;
	void read_table(size_t index, const Table &table);
	Reference reference(const Section &section, const Relocation &r, uint64_t start) const;
};
