// SPDX-License-Identifier: GPL-2.0
#include "gdb/bytecode.h"

#include <cstdio>

namespace {

struct Format {
	uint8_t bytes; /* of the operand, which is big-endian */
	uint8_t takes, leaves; /* values on the stack */
};

std::optional<Format> format_of(Op op)
{
	switch (op) {
	case Op::CONST8:
		return Format{ 1, 0, 1 };
	case Op::CONST16:
	case Op::REG:
		return Format{ 2, 0, 1 };
	case Op::CONST32:
		return Format{ 4, 0, 1 };
	case Op::CONST64:
		return Format{ 8, 0, 1 };
	case Op::PICK: /* and what it picks, see decode() */
		return Format{ 1, 0, 1 };
	case Op::EXT:
	case Op::ZERO_EXT:
		return Format{ 1, 1, 1 };
	case Op::LOG_NOT:
	case Op::BIT_NOT:
	case Op::REF8:
	case Op::REF16:
	case Op::REF32:
	case Op::REF64:
		return Format{ 0, 1, 1 };
	case Op::ADD:
	case Op::SUB:
	case Op::MUL:
	case Op::DIV_SIGNED:
	case Op::DIV_UNSIGNED:
	case Op::REM_SIGNED:
	case Op::REM_UNSIGNED:
	case Op::LSH:
	case Op::RSH_SIGNED:
	case Op::RSH_UNSIGNED:
	case Op::BIT_AND:
	case Op::BIT_OR:
	case Op::BIT_XOR:
	case Op::EQUAL:
	case Op::LESS_SIGNED:
	case Op::LESS_UNSIGNED:
		return Format{ 0, 2, 1 };
	case Op::DUP:
		return Format{ 0, 1, 2 };
	case Op::POP:
	case Op::END:
		return Format{ 0, 1, 0 };
	case Op::SWAP:
		return Format{ 0, 2, 2 };
	case Op::ROT:
		return Format{ 0, 3, 3 };
	case Op::IF_GOTO:
		return Format{ 2, 1, 0 };
	case Op::GOTO:
		return Format{ 2, 0, 0 };
	}
	return {};
}

/* The depth of the stack at each offset that something leads to. */
using Depths = std::vector<std::optional<size_t>>;

const char *lead_to(Depths &depths, size_t at, size_t depth)
{
	if (at >= depths.size())
		return "runs past its end";
	if (depths[at] && *depths[at] != depth)
		return "reaches an instruction with stacks of different depths";
	depths[at] = depth;
	return nullptr;
}

} // namespace

std::optional<Expression> decode(std::string_view bytes, std::string &why)
{
	Expression expression;
	Depths depths(bytes.size());
	std::vector<bool> begins(bytes.size()); /* an instruction */
	const auto refuse = [&](const char *reason) {
		why = reason;
		return std::nullopt;
	};

	if (const char *wrong = lead_to(depths, 0, 0))
		return refuse(wrong);
	for (size_t at = 0, next; at < bytes.size(); at = next) {
		const Op op = Op(bytes[at]);
		const std::optional<Format> format = format_of(op);
		uint64_t operand = 0;
		char name[64];

		if (!format) {
			snprintf(name, sizeof(name),
				 "uses operation 0x%02x, which has no translation", uint8_t(op));
			return refuse(name);
		}
		next = at + 1 + format->bytes;
		if (next > bytes.size())
			return refuse("ends in the middle of an instruction");
		for (size_t i = at + 1; i < next; i++)
			operand = operand << 8 | uint8_t(bytes[i]);
		begins[at] = true;
		if (!depths[at])
			continue;

		const size_t depth = *depths[at],
			     takes = op == Op::PICK ? operand + 1 : format->takes,
			     after = depth - format->takes + format->leaves;
		const bool jumps = op == Op::GOTO || op == Op::IF_GOTO;
		const char *wrong = nullptr;

		if (depth < takes)
			return refuse("takes more from the stack than it has");
		if (after > DEEPEST)
			return refuse("has more on the stack than fits");
		if (jumps && operand <= at)
			return refuse("has a loop");
		if ((op == Op::EXT || op == Op::ZERO_EXT) && (operand < 1 || operand > 64))
			return refuse("extends a number of none, or of more than 64 bits");
		if (jumps)
			wrong = lead_to(depths, operand, after);
		if (!wrong && op != Op::GOTO && op != Op::END)
			wrong = lead_to(depths, next, after);
		if (wrong)
			return refuse(wrong);
		expression.push_back({ op, operand, at, depth });
	}
	for (size_t at = 0; at < bytes.size(); at++)
		if (depths[at] && !begins[at])
			return refuse("jumps into the middle of an instruction");
	return expression;
}
