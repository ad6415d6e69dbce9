/* SPDX-License-Identifier: GPL-2.0 */
/* The functions on which the tests gdb.* set breakpoints. */
#pragma once

/* Optimized: its arguments and what it computes from them are in registers. */
long in_registers(long i, long j);

/* In a shared library, which the tracee loads late. */
long in_library(long i);
