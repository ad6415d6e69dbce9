/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A 32-bit program, written into a file in memory. It executes three instructions HITS times, one
 * after the other, and exits with the number of COMPAT_SIGNALs that its handler has caught. The first
 * stores to a word of 4 bytes, the second to the word behind it.
 */
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <span>

#define COMPAT_SIGNAL SIGUSR1

/* How its loop is written, of those that a 32-bit task of this architecture executes. */
struct InstructionSet {
	const char *name;
	size_t execute_length; /* attr.bp_len */
	uint64_t entry; /* addresses; that of the entry with what makes it Thumb */
	uint64_t at, next, after; /* of the three instructions */
	uint64_t word;
};

std::span<const InstructionSet> instruction_sets();

/* Whether the kernel executes them. */
bool executes(const InstructionSet &set);

/* Becomes such a program, or returns the errno. */
int exec_compat(const InstructionSet &set);
