/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A 32-bit program in a memfd. It executes a sequence of three instructions HITS times and exits
 * with the number of COMPAT_SIGNALs that its handler has caught. The first instruction stores to a
 * word of 4 bytes, the second to the next word.
 */
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <span>

#define COMPAT_SIGNAL SIGUSR1

/* An instruction set for 32-bit tasks, and the addresses of the program in this instruction set. */
struct InstructionSet {
	const char *name;
	size_t execute_length; /* attr.bp_len */
	uint64_t entry; /* bit 0 is set for Thumb */
	uint64_t at, next, after; /* the three instructions */
	uint64_t word; /* the first instruction stores to it */
};

std::span<const InstructionSet> instruction_sets();

/* Whether the kernel can execute programs with this instruction set. */
bool executes(const InstructionSet &set);

/* Executes the program in the calling process; returns an errno if that fails. */
int exec_compat(const InstructionSet &set);
