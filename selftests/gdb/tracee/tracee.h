/* SPDX-License-Identifier: GPL-2.0 */
/* What the tests gdb.* put breakpoints on. */
#pragma once

/* Optimized: its arguments and what it computes from them are in registers. */
long in_registers(long i, long j);

/* In a shared library, which the tracee loads late. */
long in_library(long i);
