// SPDX-License-Identifier: GPL-2.0
// seal MODULE.ko: turns the undefined symbols ".klp.sym.vmlinux.NAME,POSITION" of a module into
// livepatch symbols, which the kernel resolves by name and position when it loads the module
// (Documentation/livepatch/module-elf-format.rst). Sign the module afterwards.
//
// For each livepatch relocation, the kernel searches all symbols. Therefore each livepatch symbol
// has only one such relocation, in a table that is processed first and that no code reads. The
// other relocations are ordinary ones, because the symbol has a value by then.
#include "elf.h"

int main(int count, char **arguments)
{
	if (count != 2)
		die("usage: seal MODULE.ko");
	std::string path = arguments[1], part = path + ".part";
	Object module(path);
	Section table{ LIVEPATCH_SYMBOLS, SHT_PROGBITS, SHF_ALLOC, 8, 0, {}, {} };
	for (size_t i = 1; i < module.symbols.size(); i++) {
		Symbol &symbol = module.symbols[i];
		if (symbol.section != SHN_UNDEF || !symbol.name.starts_with(".klp.sym."))
			continue;
		symbol.section = SHN_LIVEPATCH;
		table.relocations.push_back({ table.bytes.size(), R_X86_64_64, i, 0 });
		table.bytes.resize(table.bytes.size() + 8);
	}
	if (!table.bytes.empty())
		module.add(std::move(table));
	module.write(part);
	if (rename(part.c_str(), path.c_str()))
		die("%s: %s", path.c_str(), strerror(errno));
}
