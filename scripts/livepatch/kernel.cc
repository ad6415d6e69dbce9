// SPDX-License-Identifier: GPL-2.0
#include "kernel.h"
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

Kernel::Kernel(const std::string &path)
{
	std::ifstream in(path, std::ios::binary);
	file.assign(std::istreambuf_iterator<char>(in), {});
	Elf64_Ehdr header;
	if (file.size() < sizeof header)
		die("%s: cannot be read, or too short for an ELF file", path.c_str());
	memcpy(&header, file.data(), sizeof header);
	uint64_t size = header.e_shnum * sizeof(Elf64_Shdr);
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) || header.e_machine != EM_X86_64 ||
	    header.e_shoff > file.size() || size > file.size() - header.e_shoff)
		die("%s: not an ELF file for x86-64", path.c_str());
	sections.resize(header.e_shnum);
	memcpy(sections.data(), file.data() + header.e_shoff, size);
	if (header.e_shstrndx < sections.size())
		names = sections[header.e_shstrndx];
	std::erase_if(sections, [&](const Elf64_Shdr &s) {
		return !(s.sh_flags & SHF_ALLOC) || s.sh_type == SHT_NOBITS ||
		       s.sh_offset > file.size() || s.sh_size > file.size() - s.sh_offset;
	});
	for (const Elf64_Shdr &s : sections) {
		int32_t there;
		for (uint64_t i = 0; is(s, ".ibt_endbr_seal") && i + sizeof there <= s.sh_size;
		     i += sizeof there) {
			memcpy(&there, &file[s.sh_offset + i], sizeof there);
			sealed.insert(s.sh_addr + i + there);
		}
	}
}

bool Kernel::is(const Elf64_Shdr &section, std::string_view name) const
{
	uint64_t at = names.sh_offset + section.sh_name;
	return at < file.size() && name.size() < file.size() - at &&
	       !memcmp(&file[at], name.data(), name.size()) && !file[at + name.size()];
}

std::span<const unsigned char> Kernel::at(uint64_t address, size_t size) const
{
	for (const Elf64_Shdr &s : sections)
		if (address >= s.sh_addr && address - s.sh_addr <= s.sh_size &&
		    size <= s.sh_size - (address - s.sh_addr))
			return std::span(file).subspan(s.sh_offset + (address - s.sh_addr), size);
	return {};
}

bool Kernel::is_code(uint64_t address) const
{
	// Some kernels mark all of .data as executable, by mistake.
	return std::ranges::any_of(sections, [&](const Elf64_Shdr &s) {
		return s.sh_flags & SHF_EXECINSTR && !(s.sh_flags & SHF_WRITE) &&
		       address >= s.sh_addr && address - s.sh_addr < s.sh_size;
	});
}

Kernel::Contents Kernel::contents(const Elf64_Shdr &s) const
{
	return { s.sh_addr, std::span(file).subspan(s.sh_offset, s.sh_size),
		 bool(s.sh_flags & SHF_EXECINSTR) };
}

std::vector<Kernel::Contents> Kernel::contents() const
{
	std::vector<Contents> found;
	for (const Elf64_Shdr &s : sections)
		found.push_back(contents(s));
	return found;
}

std::optional<Kernel::Contents> Kernel::contents(std::string_view section) const
{
	auto it =
		std::ranges::find_if(sections, [&](const Elf64_Shdr &s) { return is(s, section); });
	return it == sections.end() ? std::nullopt : std::optional(contents(*it));
}

bool Kernel::allows_indirect_calls(uint64_t address) const
{
	constexpr unsigned char ENDBR[] = { 0xf3, 0x0f, 0x1e, 0xfa };
	return sealed.empty() ||
	       (std::ranges::equal(at(address, sizeof ENDBR), ENDBR) && !sealed.contains(address));
}

void Kernel::set_symbols(const std::vector<Kernel_symbol> &symbols)
{
	by_name.clear();
	for (const Kernel_symbol &s : symbols)
		by_name.emplace(s.name, s);
}

std::vector<uint64_t> Kernel::addresses(const std::string &name) const
{
	std::vector<uint64_t> found;
	for (auto [it, end] = by_name.equal_range(name); it != end; ++it)
		found.push_back(it->second.address);
	std::ranges::sort(found);
	return found;
}

std::optional<uint64_t> Kernel::global(const std::string &name) const
{
	std::optional<uint64_t> found;
	for (auto [it, end] = by_name.equal_range(name); it != end; ++it)
		if (isupper(it->second.type)) {
			if (found)
				return {};
			found = it->second.address;
		}
	return found;
}

std::optional<unsigned> Kernel::position(const std::string &name, uint64_t address) const
{
	std::vector<uint64_t> all = addresses(name);
	for (size_t i = 0; i < all.size(); i++)
		if (same_address(all[i], address))
			return i + 1;
	return {};
}

// scripts/kallsyms.c writes these tables, each aligned to 8 bytes, or to 4 since one of the 7.x
// kernels: the number of symbols; their names; markers, which are offsets into the names; in some
// kernels, an order by name; the tokens of which names consist; an index of the tokens. The offsets
// of the symbols, and the base to which they are relative, come before or after these tables. With
// an alignment of 4 there is no base: each offset is relative to its own address.
std::vector<Kernel_symbol> Kernel::kallsyms() const
{
	size_t boundary = 8;
	auto align = [&](size_t at) { return (at + boundary - 1) & ~(boundary - 1); };
	auto word = [&]<typename T>(size_t at, T) {
		T value = 0;
		if (at <= file.size() - sizeof value)
			memcpy(&value, file.data() + at, sizeof value);
		return value;
	};

	// Find the tokens by those of the digits, which are the digits themselves, and go back from
	// there to the first token.
	std::string digits;
	for (char c = '0'; c <= '9'; c++)
		digits += { c, '\0' };
	size_t tokens = 0;
	for (auto it = file.begin(); !tokens && it != file.end(); it += it != file.end()) {
		it = std::search(it, file.end(), digits.begin(), digits.end());
		size_t start = it - file.begin();
		for (int back = 0; it != file.end() && back < '0' && start > 1; back++)
			for (start--; start > 0 && file[start - 1]; start--)
				;
		if (it != file.end() && start % 4 == 0)
			tokens = start;
	}
	std::vector<std::string> token;
	size_t at = tokens;
	for (; tokens && token.size() < 256 && at < file.size(); at += token.back().size() + 1)
		token.push_back(reinterpret_cast<const char *>(file.data() + at));
	if (token.size() != 256)
		die("the kernel has no kallsyms");

	// names_end(N, AT) returns where N names end that begin at AT, or 0 if there are no names
	// at AT. It sets @starts to the markers that belong to them.
	std::vector<uint32_t> starts;
	auto length = [&](size_t &at) {
		size_t size = file[at++];
		if (size & 0x80)
			size = (size & 0x7f) | file[at++] << 7;
		return size;
	};
	auto names_end = [&](size_t number, size_t begin) -> size_t {
		starts.clear();
		size_t at = begin;
		for (size_t i = 0; i < number; i++) {
			if (i % 256 == 0)
				starts.push_back(at - begin);
			if (at + 2 > tokens)
				return 0;
			size_t size = length(at);
			if (!size || size > 512)
				return 0;
			at += size;
		}
		return at;
	};
	size_t number = 0, names = 0;
	for (size_t start = tokens - 4; !names && start > 64; start -= 4) {
		number = word(start, uint32_t());
		if (number < 1000 || number > 4000000)
			continue;
		boundary = word(start + 4, uint32_t()) ? 4 : 8;
		size_t end = names_end(number, start + boundary), markers = align(end);
		if (end && markers + starts.size() * 4 <= tokens &&
		    !memcmp(file.data() + markers, starts.data(), starts.size() * 4))
			names = start + boundary;
	}
	size_t index = align(at), index_end = align(index + 256 * 2);
	if (!names || word(index, uint16_t()) || word(index + 2, uint16_t()) != token[0].size() + 1)
		die("the kernel's kallsyms have an unknown format");

	// The base is an address of the kernel.
	auto kernel_base = [&](size_t at) { return word(at, uint64_t()) >> 31 == 0x1ffffffff; };
	size_t behind = align(index_end + number * 4), before = names - 16;
	size_t base_at = boundary == 8 && kernel_base(before) ? before : behind;
	if (boundary == 8 && !kernel_base(base_at))
		die("the kernel's kallsyms have no base address");
	size_t offsets = base_at == before ? before - align(number * 4) : index_end;
	uint64_t base = word(base_at, uint64_t());
	auto address_of = [&](size_t at) -> uint64_t {
		for (const Elf64_Shdr &s : sections)
			if (at >= s.sh_offset && at - s.sh_offset < s.sh_size)
				return s.sh_addr + (at - s.sh_offset);
		die("the kernel's kallsyms are outside its sections");
	};

	std::vector<Kernel_symbol> symbols;
	size_t name = names;
	for (size_t i = 0; i < number; i++) {
		std::string text;
		size_t size = length(name);
		for (size_t j = 0; j < size; j++)
			text += token[file[name + j]];
		name += size;
		int32_t offset = word(offsets + i * 4, int32_t());
		// The offsets of per-CPU symbols are not relative to the base.
		uint64_t address = boundary == 4 ? address_of(offsets + i * 4) + (int64_t)offset
				   : offset < 0	 ? base - 1 - (int64_t)offset
						 : offset;
		symbols.push_back({ address, text[0], text.substr(1) });
	}
	return symbols;
}
