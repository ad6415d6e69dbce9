// SPDX-License-Identifier: GPL-2.0
// A relocatable object for x86-64 as tables that can be changed. libelf reads and writes the file.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <elf.h>
#include <fcntl.h>
#include <libelf.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

// Prints one line that says what is wrong, where, and what to do; then exits.
[[noreturn, gnu::format(printf, 1, 2)]] inline void die(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(1);
}

constexpr uint16_t SHN_LIVEPATCH = 0xff20; // of a symbol that livepatch resolves
// The section whose relocations livepatch applies, see seal.cc.
constexpr char LIVEPATCH_SYMBOLS[] = ".livepatch.symbols";

struct Relocation {
	uint64_t offset;
	uint32_t type;
	size_t symbol; // index
	int64_t addend;

	// The number of bytes that a relocation of this type fills in; none if the type is unknown.
	static std::optional<size_t> width(uint32_t type)
	{
		switch (type) {
		case R_X86_64_NONE:
			return 0;
		case R_X86_64_32:
		case R_X86_64_32S:
		case R_X86_64_PC32:
		case R_X86_64_PLT32:
			return 4;
		case R_X86_64_64:
		case R_X86_64_PC64:
			return 8;
		}
		return {};
	}
	size_t width() const { return *width(type); }
	bool relative() const
	{
		return type == R_X86_64_PC32 || type == R_X86_64_PLT32 || type == R_X86_64_PC64;
	}
};

struct Symbol {
	std::string name;
	unsigned char bind, type, other;
	uint16_t section; // index, SHN_UNDEF, SHN_ABS, SHN_LIVEPATCH
	uint64_t value, size;
};

struct Section {
	std::string name;
	uint32_t type;
	uint64_t flags, align, entry_size;
	std::vector<unsigned char> bytes; // for SHT_NOBITS, too: all 0
	std::vector<Relocation> relocations;

	bool code() const { return flags & SHF_EXECINSTR; }
	// The linker merges equal entries, so an entry has no fixed offset.
	bool merged() const { return flags & SHF_MERGE; }
};

struct Elf_file {
	int fd = -1;
	Elf *elf = nullptr;

	Elf_file(const std::string &path, int flags, Elf_Cmd command)
	{
		elf_version(EV_CURRENT);
		fd = open(path.c_str(), flags | O_CLOEXEC, 0666);
		elf = fd < 0 ? nullptr : elf_begin(fd, command, nullptr);
		if (!elf)
			die("%s: %s", path.c_str(), fd < 0 ? strerror(errno) : elf_errmsg(-1));
	}
	Elf_file(const Elf_file &) = delete;
	~Elf_file()
	{
		elf_end(elf);
		close(fd);
	}
};

struct Object {
	std::string path;
	// Without the sections for symbols, names, groups and relocations.
	std::vector<Section> sections{ Section{} };
	std::vector<Symbol> symbols{ Symbol{} };

	Object() = default;
	explicit Object(const std::string &path);
	void write(const std::string &path) const;

	size_t add(Section section)
	{
		sections.push_back(std::move(section));
		return sections.size() - 1;
	}
	size_t add(Symbol symbol)
	{
		symbols.push_back(std::move(symbol));
		return symbols.size() - 1;
	}
};
