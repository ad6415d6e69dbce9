/* SPDX-License-Identifier: GPL-2.0 */
/* Agent expressions, in which gdb sends conditions: "Agent Expressions" in gdb's manual. */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

enum class Op : uint8_t {
	ADD = 0x02,
	SUB,
	MUL,
	DIV_SIGNED,
	DIV_UNSIGNED,
	REM_SIGNED,
	REM_UNSIGNED,
	LSH,
	RSH_SIGNED,
	RSH_UNSIGNED,
	LOG_NOT = 0x0e,
	BIT_AND,
	BIT_OR,
	BIT_XOR,
	BIT_NOT,
	EQUAL,
	LESS_SIGNED,
	LESS_UNSIGNED,
	EXT,
	REF8,
	REF16,
	REF32,
	REF64,
	IF_GOTO = 0x20,
	GOTO,
	CONST8,
	CONST16,
	CONST32,
	CONST64,
	REG,
	END,
	DUP,
	POP,
	ZERO_EXT,
	SWAP,
	PICK = 0x32,
	ROT,
};

struct Instruction {
	Op op;
	uint64_t operand; /* constant, register, bits, depth, or the target of a jump */
	size_t at; /* its offset, which jumps name */
	size_t depth; /* of the stack before it */
};

using Expression = std::vector<Instruction>;

/* How many values fit on the 512 bytes of a BPF program's stack, with room for one more. */
constexpr size_t DEEPEST = 60;

/*
 * The instructions that are reached, in their order; none, and @why, for an expression that cannot
 * be translated: operations on floats and of tracepoints, loops, and what is malformed. Each
 * instruction of the result has its operands on the stack, jumps forward to another one, and is
 * reached with one depth only.
 */
std::optional<Expression> decode(std::string_view bytes, std::string &why);
