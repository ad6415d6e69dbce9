/* SPDX-License-Identifier: GPL-2.0 */
/* Conditions as a BPF program. */
#pragma once

#include <linux/bpf.h>

#include <string>
#include <vector>

#include "gdb/bytecode.h"
#include "gdb/registers.h"

/*
 * A program of type perf_event that returns 1, accepts the hit, if one of @conditions is not 0.
 *
 * It also accepts a hit for which it cannot evaluate the condition, because gdb evaluates it again
 * before it stops: memory that cannot be read without a page fault, a division by zero, a shift by
 * 64 bits or more. Returns none, and @why, if a condition uses something that a program cannot do.
 */
std::vector<bpf_insn> translate(const std::vector<Expression> &conditions,
				const Registers &registers, std::string &why);
