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
 * Returns the reachable instructions in their order. Returns none, and @why, if the expression is
 * malformed or cannot be translated: it has a loop, or an operation on floats or of tracepoints. In
 * the result each instruction finds its operands on the stack, jumps only forward, to another
 * instruction, and is always reached with the same depth.
 */
std::optional<Expression> decode(std::string_view bytes, std::string &why);
