// SPDX-License-Identifier: GPL-2.0
#include "lib/hit.h"

/* The bodies differ so that a linker cannot fold the two functions into one. */
NOINLINE_NOCLONE void hit(uint64_t value)
{
	asm volatile("" : : "r"(value), "i"(1) : "memory");
}

NOINLINE_NOCLONE void hit_other(uint64_t value)
{
	asm volatile("nop" : : "r"(value), "i"(2) : "memory");
}

void hit_times(uint64_t times)
{
	for (uint64_t i = 0; i < times; i++)
		hit(i);
}

void hit_other_times(uint64_t times)
{
	for (uint64_t i = 0; i < times; i++)
		hit_other(i);
}
