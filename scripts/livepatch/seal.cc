// SPDX-License-Identifier: GPL-2.0
// seal MODULE.ko: turns what the module wants from the kernel by name and position, undefined symbols
// ".klp.sym.vmlinux.NAME,POSITION", into livepatch relocations, which the kernel resolves as it loads
// the module (Documentation/livepatch/module-elf-format.rst). Whatever signs the module comes after.
#include "elf.h"

int main(int count, char **arguments)
{
	if (count != 2)
		die("usage: seal MODULE.ko");
	std::string path = arguments[1], part = path + ".part";
	Object(path).write(part, true);
	if (rename(part.c_str(), path.c_str()))
		die("%s: %s", path.c_str(), strerror(errno));
}
