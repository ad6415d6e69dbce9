// SPDX-License-Identifier: GPL-2.0
/* Compiled with -O2, unlike the rest of the tracee. */
#include "tracee.h"

#ifdef __clang__
__attribute__((noinline))
#else
__attribute__((noipa))
#endif
long in_registers(long i, long j)
{
	return i * 3 + j;
}
