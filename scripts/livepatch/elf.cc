// SPDX-License-Identifier: GPL-2.0
#include "elf.h"
#include <algorithm>
#include <map>

Object::Object(const std::string &path)
	: path(path)
{
	Elf_file file(path, O_RDONLY, ELF_C_READ);
	const Elf64_Ehdr *header = elf64_getehdr(file.elf);
	size_t names;
	if (!header || header->e_type != ET_REL || header->e_machine != EM_X86_64 ||
	    elf_getshdrstrndx(file.elf, &names))
		die("%s: not an object file for x86-64", path.c_str());

	auto data = [&](Elf_Scn *scn) {
		Elf_Data *data = elf_getdata(scn, nullptr);
		if (!data)
			die("%s: cannot read a section: %s", path.c_str(), elf_errmsg(-1));
		return data;
	};
	auto name = [&](size_t strings, size_t offset) {
		const char *text = elf_strptr(file.elf, strings, offset);
		return std::string(text ? text : "");
	};

	std::map<size_t, size_t> index; // in @sections, by the index in the file
	std::vector<Elf_Scn *> relocations;
	Elf_Scn *symtab = nullptr;
	for (Elf_Scn *scn = nullptr; (scn = elf_nextscn(file.elf, scn));) {
		const Elf64_Shdr *sh = elf64_getshdr(scn);
		if (sh->sh_type == SHT_SYMTAB) {
			symtab = scn;
		} else if (sh->sh_type == SHT_RELA) {
			relocations.push_back(scn);
		} else if (sh->sh_type != SHT_STRTAB && sh->sh_type != SHT_GROUP) {
			Section section{ name(names, sh->sh_name),
					 sh->sh_type,
					 sh->sh_flags,
					 sh->sh_addralign,
					 sh->sh_entsize,
					 {},
					 {} };
			section.bytes.resize(sh->sh_size);
			if (sh->sh_type != SHT_NOBITS && sh->sh_size)
				memcpy(section.bytes.data(), data(scn)->d_buf, sh->sh_size);
			index[elf_ndxscn(scn)] = add(std::move(section));
		}
	}
	if (!symtab)
		die("%s: no symbol table", path.c_str());

	const Elf64_Shdr *sh = elf64_getshdr(symtab);
	auto *sym = static_cast<const Elf64_Sym *>(data(symtab)->d_buf);
	for (size_t i = 1; i < sh->sh_size / sizeof *sym; i++) {
		const Elf64_Sym &s = sym[i];
		bool special = s.st_shndx == SHN_UNDEF || s.st_shndx >= SHN_LORESERVE;
		uint16_t section = special ? s.st_shndx : index[s.st_shndx];
		add(Symbol{ name(sh->sh_link, s.st_name), (unsigned char)ELF64_ST_BIND(s.st_info),
			    (unsigned char)ELF64_ST_TYPE(s.st_info), s.st_other, section,
			    s.st_value, s.st_size });
	}
	for (Elf_Scn *scn : relocations) {
		sh = elf64_getshdr(scn);
		if (!index.contains(sh->sh_info))
			continue;
		Section &section = sections[index[sh->sh_info]];
		auto *rela = static_cast<const Elf64_Rela *>(data(scn)->d_buf);
		for (size_t i = 0; i < sh->sh_size / sizeof *rela; i++) {
			Relocation r{ rela[i].r_offset, (uint32_t)ELF64_R_TYPE(rela[i].r_info),
				      ELF64_R_SYM(rela[i].r_info), rela[i].r_addend };
			std::optional<size_t> width = Relocation::width(r.type);
			if (!width)
				die("%s: section %s has a relocation of unknown type %u",
				    path.c_str(), section.name.c_str(), r.type);
			if (r.offset > section.bytes.size() ||
			    *width > section.bytes.size() - r.offset || r.symbol >= symbols.size())
				die("%s: damaged: section %s has a relocation out of bounds",
				    path.c_str(), section.name.c_str());
			section.relocations.push_back(r);
		}
		std::ranges::stable_sort(section.relocations, {}, &Relocation::offset);
	}
}

void Object::write(const std::string &path) const
{
	constexpr uint64_t SHF_RELA_LIVEPATCH = 0x00100000;
	Elf_file file(path, O_RDWR | O_CREAT | O_TRUNC, ELF_C_WRITE);
	Elf64_Ehdr *header = elf64_newehdr(file.elf);
	std::string section_names(1, '\0'), names(1, '\0');
	// libelf does not copy these: they must exist until elf_update() writes the file.
	std::vector<std::unique_ptr<std::vector<Elf64_Rela>>> tables;

	auto section = [&](const std::string &name, uint32_t type, uint64_t flags, uint64_t align,
			   uint64_t entry_size, const void *bytes, size_t size, Elf_Type kind) {
		Elf_Scn *scn = elf_newscn(file.elf);
		Elf_Data *data = scn ? elf_newdata(scn) : nullptr;
		if (!data)
			die("%s: %s", path.c_str(), elf_errmsg(-1));
		data->d_buf = const_cast<void *>(bytes);
		data->d_size = size;
		data->d_align = std::max<uint64_t>(align, 1);
		data->d_type = kind;
		Elf64_Shdr *sh = elf64_getshdr(scn);
		sh->sh_name = section_names.size();
		sh->sh_type = type;
		sh->sh_flags = flags;
		sh->sh_entsize = entry_size;
		section_names += name + '\0';
		return scn;
	};

	// ELF requires local symbols to come first.
	std::vector<size_t> order(symbols.size()), position(symbols.size());
	for (size_t i = 0; i < order.size(); i++)
		order[i] = i;
	auto global = std::stable_partition(order.begin() + 1, order.end(),
					    [&](size_t i) { return symbols[i].bind == STB_LOCAL; });
	std::vector<Elf64_Sym> table;
	for (size_t i : order) {
		const Symbol &s = symbols[i];
		position[i] = table.size();
		table.push_back({ (Elf64_Word)(s.name.empty() ? 0 : names.size()),
				  (unsigned char)ELF64_ST_INFO(s.bind, s.type), s.other, s.section,
				  s.value, s.size });
		if (!s.name.empty())
			names += s.name + '\0';
	}

	for (size_t i = 1; i < sections.size(); i++) {
		const Section &s = sections[i];
		section(s.name, s.type, s.flags, s.align, s.entry_size, s.bytes.data(),
			s.bytes.size(), ELF_T_BYTE);
	}
	size_t symtab_index = sections.size();
	Elf_Scn *symtab = section(".symtab", SHT_SYMTAB, 0, 8, sizeof(Elf64_Sym), table.data(),
				  table.size() * sizeof(Elf64_Sym), ELF_T_SYM);
	Elf_Scn *strtab =
		section(".strtab", SHT_STRTAB, 0, 1, 0, names.data(), names.size(), ELF_T_BYTE);
	elf64_getshdr(symtab)->sh_link = elf_ndxscn(strtab);
	elf64_getshdr(symtab)->sh_info = 1 + (global - order.begin() - 1);

	// The kernel processes sections in order: livepatch relocations come first.
	for (bool klp : { true, false }) {
		for (size_t i = 1; i < sections.size(); i++) {
			auto &rela =
				*tables.emplace_back(std::make_unique<std::vector<Elf64_Rela>>());
			if ((sections[i].name == LIVEPATCH_SYMBOLS) == klp)
				for (const Relocation &r : sections[i].relocations)
					rela.push_back({ r.offset,
							 ELF64_R_INFO(position[r.symbol], r.type),
							 r.addend });
			if (rela.empty())
				continue;
			Elf_Scn *scn = section(
				(klp ? ".klp.rela.vmlinux." : ".rela") + sections[i].name, SHT_RELA,
				SHF_INFO_LINK | (klp ? SHF_ALLOC | SHF_RELA_LIVEPATCH : 0), 8,
				sizeof(Elf64_Rela), rela.data(), rela.size() * sizeof(Elf64_Rela),
				ELF_T_RELA);
			elf64_getshdr(scn)->sh_link = symtab_index;
			elf64_getshdr(scn)->sh_info = i;
		}
	}
	std::string own = ".shstrtab";
	Elf_Scn *shstrtab = section(own, SHT_STRTAB, 0, 1, 0, nullptr, 0, ELF_T_BYTE);
	Elf_Data *data = elf_getdata(shstrtab, nullptr);
	data->d_buf = section_names.data();
	data->d_size = section_names.size();

	header->e_ident[EI_DATA] = ELFDATA2LSB;
	header->e_type = ET_REL;
	header->e_machine = EM_X86_64;
	header->e_version = EV_CURRENT;
	header->e_shstrndx = elf_ndxscn(shstrtab);
	if (elf_update(file.elf, ELF_C_WRITE) < 0)
		die("%s: %s", path.c_str(), elf_errmsg(-1));
}
