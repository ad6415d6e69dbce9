// SPDX-License-Identifier: GPL-2.0
// The kernel to be patched, as its distribution ships it: an ELF file without symbols, and the list
// of symbols that it carries for itself.
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
	char type; // as nm and /proc/kallsyms have it
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
	std::set<uint64_t> sealed;
	Elf64_Shdr names{}; // the section that has those of sections

	bool is(const Elf64_Shdr &section, std::string_view name) const;
	Contents contents(const Elf64_Shdr &section) const;

public:
	explicit Kernel(const std::string &path);

	// What its kallsyms say, in their order. use() makes these, or others, those that are
	// looked up.
	std::vector<Kernel_symbol> kallsyms() const;
	void use(const std::vector<Kernel_symbol> &symbols);

	// @size bytes at @address; none if the file has none.
	std::span<const unsigned char> at(uint64_t address, size_t size) const;
	bool is_code(uint64_t address) const;
	// Of each section that the file has, and of that which has the name.
	std::vector<Contents> contents() const;
	std::optional<Contents> contents(std::string_view section) const;

	std::vector<uint64_t> addresses(const std::string &name) const; // ascending
	// Of that which files see of each other. The link lets no two have one name.
	std::optional<uint64_t> global(const std::string &name) const;
	// Whether a pointer may be called that leads there. With IBT the CPU wants a mark (ENDBR),
	// which the kernel takes off as it boots where it has no pointer itself (.ibt_endbr_seal).
	bool has_pointers(uint64_t address) const;
	// How livepatch distinguishes symbols of one name: 1, 2, ... by address. For 0, "the only
	// one", the kernel would look through all of them each time, which doubles the time to
	// load.
	std::optional<unsigned> position(const std::string &name, uint64_t address) const;
};

// Instructions reach 2 GiB only: an address is known by its lower half.
inline bool same_address(uint64_t a, uint64_t b)
{
	return (uint32_t)a == (uint32_t)b;
}
