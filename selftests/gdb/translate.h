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
 * It also accepts a hit about which it cannot decide, because gdb evaluates the condition again
 * before it stops: memory that cannot be read without a page fault, a division by zero, a shift by
 * 64 bits or more. None, and @why, if a condition uses what the program does not have.
 */
std::vector<bpf_insn> translate(const std::vector<Expression> &conditions,
				const Registers &registers, std::string &why);
