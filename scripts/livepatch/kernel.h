// SPDX-License-Identifier: GPL-2.0
// The kernel to be patched, as its distribution ships it: an ELF file without a symbol table, but
// with kallsyms.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>
#include "elf.h"

struct Kernel_symbol {
	uint64_t address;
	char type; // the letter that nm and /proc/kallsyms print
	std::string name;
};

class Kernel {
public:
	struct Contents {
		uint64_t address;
		std::span<const unsigned char> bytes;
		bool code;
	};

private:
	std::vector<unsigned char> file;
	std::vector<Elf64_Shdr> sections;
	std::multimap<std::string, Kernel_symbol> by_name;
	std::set<uint64_t> sealed; // addresses where the kernel removes ENDBR at boot
	Elf64_Shdr names{}; // the section with the names of sections

	bool is(const Elf64_Shdr &section, std::string_view name) const;
	Contents contents(const Elf64_Shdr &section) const;

public:
	explicit Kernel(const std::string &path);

	// Decodes kallsyms, and returns the symbols in their order.
	std::vector<Kernel_symbol> kallsyms() const;
	// Sets the symbols that addresses(), global() and position() look up.
	void set_symbols(const std::vector<Kernel_symbol> &symbols);

	// @size bytes at @address; empty if the file does not have them all.
	std::span<const unsigned char> at(uint64_t address, size_t size) const;
	bool is_code(uint64_t address) const;
	// The contents of each loaded section, or of the one with this name.
	std::vector<Contents> contents() const;
	std::optional<Contents> contents(std::string_view section) const;

	std::vector<uint64_t> addresses(const std::string &name) const; // ascending
	// The address of the global symbol with this name; none if there is not exactly one.
	std::optional<uint64_t> global(const std::string &name) const;
	// Whether @address can be called through a pointer. With IBT, the CPU requires an ENDBR
	// there. At boot, the kernel removes it from functions that the kernel itself has no
	// pointers to (.ibt_endbr_seal).
	bool allows_indirect_calls(uint64_t address) const;
	// The position by which livepatch distinguishes symbols of the same name: 1, 2, ... by
	// address. With 0 ("the only one") the kernel would search all symbols for a second one,
	// which doubles the time to load.
	std::optional<unsigned> position(const std::string &name, uint64_t address) const;
};

// The kernel is within 2 GiB, so the lower half identifies an address.
inline bool same_address(uint64_t a, uint64_t b)
{
	return (uint32_t)a == (uint32_t)b;
}
