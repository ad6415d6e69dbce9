// SPDX-License-Identifier: GPL-2.0
// symbols VMLINUX: prints the symbols in the kernel's kallsyms, in the format of /proc/kallsyms.
#include "kernel.h"

int main(int count, char **arguments)
{
	if (count != 2)
		die("usage: symbols VMLINUX");
	for (const Kernel_symbol &s : Kernel(arguments[1]).kallsyms())
		printf("%016lx %c %s\n", s.address, s.type, s.name.c_str());
}
