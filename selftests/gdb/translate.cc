// SPDX-License-Identifier: GPL-2.0
/*
 * The expression's stack is kept on the stack of the BPF program: the depth before each instruction
 * is known, so each value has a fixed slot. Every operation loads its operands from their slots and
 * stores its result.
 */
#include "gdb/translate.h"

#include <climits>
#include <map>

#include "gdb/registers.h"

namespace {

/* The context is kept in R6, which calls preserve. */
enum : uint8_t { R0, R1, R2, R3, R6 = 6, FP = 10 };

constexpr int16_t READ_BUFFER = -8; /* from the frame pointer */

constexpr int16_t slot(size_t depth)
{
	return READ_BUFFER - 8 * int16_t(depth + 1);
}
static_assert(-slot(DEEPEST) <= 512, "the stack of a BPF program");

class Assembler {
public:
	using Label = size_t;

	void add(uint8_t code, uint8_t dst, uint8_t src = 0, int16_t off = 0, int32_t imm = 0)
	{
		insns_.push_back({ code, uint8_t(dst & 15), uint8_t(src & 15), off, imm });
	}
	void alu(uint8_t op, uint8_t dst, uint8_t src) { add(BPF_ALU64 | op | BPF_X, dst, src); }
	void alu_imm(uint8_t op, uint8_t dst, int32_t imm)
	{
		add(BPF_ALU64 | op | BPF_K, dst, 0, 0, imm);
	}
	void constant(uint8_t dst, uint64_t value)
	{
		add(BPF_LD | BPF_DW | BPF_IMM, dst, 0, 0, int32_t(value));
		add(0, 0, 0, 0, int32_t(value >> 32));
	}
	void load(uint8_t dst, uint8_t base, int16_t off)
	{
		add(BPF_LDX | BPF_MEM | BPF_DW, dst, base, off);
	}
	void store(int16_t off, uint8_t src) { add(BPF_STX | BPF_MEM | BPF_DW, FP, src, off); }

	Label new_label()
	{
		places_.push_back(-1);
		return places_.size() - 1;
	}
	void place(Label label) { places_[label] = insns_.size(); }
	void jump(Label to, uint8_t op = BPF_JA, uint8_t dst = 0, int32_t imm = 0)
	{
		jumps_.push_back({ insns_.size(), to });
		add(BPF_JMP | op | BPF_K, dst, 0, 0, imm);
	}
	void jump_reg(Label to, uint8_t op, uint8_t dst, uint8_t src)
	{
		jumps_.push_back({ insns_.size(), to });
		add(BPF_JMP | op | BPF_X, dst, src);
	}
	/* Whether every jump reaches its label. */
	bool link()
	{
		for (const Jump &jump : jumps_) {
			const long off = places_[jump.to] - long(jump.at) - 1;

			if (off > SHRT_MAX)
				return false;
			insns_[jump.at].off = off;
		}
		return true;
	}
	std::vector<bpf_insn> take() { return std::move(insns_); }

private:
	struct Jump {
		size_t at;
		Label to;
	};

	std::vector<bpf_insn> insns_;
	std::vector<long> places_;
	std::vector<Jump> jumps_;
};

class Translator {
public:
	Translator(const Registers &registers, std::string &why)
		: registers_(registers)
		, why_(why)
		, accept_(code_.new_label())
	{
		code_.alu(BPF_MOV, R6, R1);
	}

	bool condition(const Expression &expression)
	{
		std::map<uint64_t, Assembler::Label> labels;
		const Assembler::Label fails = code_.new_label();

		for (const Instruction &i : expression)
			if (i.op == Op::GOTO || i.op == Op::IF_GOTO)
				labels.try_emplace(i.operand, code_.new_label());
		for (const Instruction &i : expression) {
			depth_ = i.depth;
			if (auto label = labels.find(i.at); label != labels.end())
				code_.place(label->second);
			if (i.op == Op::END) {
				pop(R1);
				code_.jump(accept_, BPF_JNE, R1, 0);
				if (&i != &expression.back())
					code_.jump(fails);
			} else if (i.op == Op::GOTO) {
				code_.jump(labels[i.operand]);
			} else if (i.op == Op::IF_GOTO) {
				pop(R1);
				code_.jump(labels[i.operand], BPF_JNE, R1, 0);
			} else if (!operation(i)) {
				return false;
			}
		}
		code_.place(fails);
		return true;
	}

	std::vector<bpf_insn> finish()
	{
		code_.alu_imm(BPF_MOV, R0, 0);
		code_.add(BPF_JMP | BPF_EXIT, 0);
		code_.place(accept_);
		code_.alu_imm(BPF_MOV, R0, 1);
		code_.add(BPF_JMP | BPF_EXIT, 0);
		if (code_.link())
			return code_.take();
		why_ = "is too long for a jump of BPF";
		return {};
	}

private:
	void push(uint8_t reg) { code_.store(slot(depth_++), reg); }
	void pop(uint8_t reg) { code_.load(reg, FP, slot(--depth_)); }

	/* R1 OP R2, as one instruction. */
	void binary(uint8_t op)
	{
		pop(R2);
		pop(R1);
		code_.alu(op, R1, R2);
		push(R1);
	}

	/* C does not define a shift by its width or more, and gdb's versions differ. */
	void shift(uint8_t op)
	{
		pop(R2);
		pop(R1);
		code_.jump(accept_, BPF_JGT, R2, 63);
		code_.alu(op, R1, R2);
		push(R1);
	}

	/* R1 / R2 or R1 % R2; signed, which BPF has since 6.6, by the absolute values. */
	void divide(uint8_t op, bool is_signed)
	{
		pop(R2);
		pop(R1);
		code_.jump(accept_, BPF_JEQ, R2, 0);
		if (is_signed) {
			/* The top bit of R3: whether the result is negative. */
			code_.alu(BPF_MOV, R3, R1);
			if (op == BPF_DIV)
				code_.alu(BPF_XOR, R3, R2);
			negate_unless_positive(R1, R1);
			negate_unless_positive(R2, R2);
		}
		code_.alu(op, R1, R2);
		if (is_signed)
			negate_unless_positive(R1, R3);
		push(R1);
	}

	void negate_unless_positive(uint8_t value, uint8_t sign)
	{
		const Assembler::Label positive = code_.new_label();

		code_.jump(positive, BPF_JSGE, sign, 0);
		code_.add(BPF_ALU64 | BPF_NEG, value);
		code_.place(positive);
	}

	/* R3, which is 1 if R1 @op R2, else 0. */
	void compare(uint8_t op)
	{
		const Assembler::Label holds = code_.new_label();

		pop(R2);
		pop(R1);
		code_.alu_imm(BPF_MOV, R3, 1);
		code_.jump_reg(holds, op, R1, R2);
		code_.alu_imm(BPF_MOV, R3, 0);
		code_.place(holds);
		push(R3);
	}

	void extend(uint8_t shift_back, uint64_t bits)
	{
		pop(R1);
		if (bits < 64) {
			code_.alu_imm(BPF_LSH, R1, 64 - bits);
			code_.alu_imm(shift_back, R1, 64 - bits);
		}
		push(R1);
	}

	void read(int size)
	{
		pop(R3);
		code_.alu_imm(BPF_MOV, R1, 0);
		code_.store(READ_BUFFER, R1);
		code_.alu(BPF_MOV, R1, FP);
		code_.alu_imm(BPF_ADD, R1, READ_BUFFER);
		code_.alu_imm(BPF_MOV, R2, size);
		code_.add(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_probe_read_user);
		code_.jump(accept_, BPF_JNE, R0, 0);
		code_.load(R1, FP, READ_BUFFER);
		push(R1);
	}

	bool load_register(uint64_t number)
	{
		const Register *reg = registers_.find(number);

		if (!reg) {
			why_ = "uses register " + std::to_string(number) +
			       ", which a BPF program does not see";
			return false;
		}
		code_.load(R1, R6, reg->offset);
		if (reg->bits == 32)
			code_.add(BPF_ALU | BPF_MOV | BPF_X, R1, R1);
		push(R1);
		return true;
	}

	bool operation(const Instruction &i)
	{
		switch (i.op) {
		case Op::ADD:
			binary(BPF_ADD);
			break;
		case Op::SUB:
			binary(BPF_SUB);
			break;
		case Op::MUL:
			binary(BPF_MUL);
			break;
		case Op::BIT_AND:
			binary(BPF_AND);
			break;
		case Op::BIT_OR:
			binary(BPF_OR);
			break;
		case Op::BIT_XOR:
			binary(BPF_XOR);
			break;
		case Op::LSH:
			shift(BPF_LSH);
			break;
		case Op::RSH_SIGNED:
			shift(BPF_ARSH);
			break;
		case Op::RSH_UNSIGNED:
			shift(BPF_RSH);
			break;
		case Op::DIV_SIGNED:
			divide(BPF_DIV, true);
			break;
		case Op::DIV_UNSIGNED:
			divide(BPF_DIV, false);
			break;
		case Op::REM_SIGNED:
			divide(BPF_MOD, true);
			break;
		case Op::REM_UNSIGNED:
			divide(BPF_MOD, false);
			break;
		case Op::EQUAL:
			compare(BPF_JEQ);
			break;
		case Op::LESS_SIGNED:
			compare(BPF_JSLT);
			break;
		case Op::LESS_UNSIGNED:
			compare(BPF_JLT);
			break;
		case Op::LOG_NOT:
			code_.alu_imm(BPF_MOV, R1, 0);
			push(R1);
			compare(BPF_JEQ);
			break;
		case Op::BIT_NOT:
			pop(R1);
			code_.alu_imm(BPF_XOR, R1, -1);
			push(R1);
			break;
		case Op::EXT:
			extend(BPF_ARSH, i.operand);
			break;
		case Op::ZERO_EXT:
			extend(BPF_RSH, i.operand);
			break;
		case Op::REF8:
			read(1);
			break;
		case Op::REF16:
			read(2);
			break;
		case Op::REF32:
			read(4);
			break;
		case Op::REF64:
			read(8);
			break;
		case Op::CONST8:
		case Op::CONST16:
		case Op::CONST32:
		case Op::CONST64:
			code_.constant(R1, i.operand);
			push(R1);
			break;
		case Op::REG:
			return load_register(i.operand);
		case Op::DUP:
			pick(0);
			break;
		case Op::PICK:
			pick(i.operand);
			break;
		case Op::POP:
			depth_--;
			break;
		case Op::SWAP:
			pop(R2);
			pop(R1);
			push(R2);
			push(R1);
			break;
		case Op::ROT: /* a b c, the last on top, becomes c a b */
			pop(R3);
			pop(R2);
			pop(R1);
			push(R3);
			push(R1);
			push(R2);
			break;
		case Op::GOTO:
		case Op::IF_GOTO:
		case Op::END: /* condition() */
			break;
		}
		return true;
	}

	void pick(size_t below_top)
	{
		code_.load(R1, FP, slot(depth_ - 1 - below_top));
		push(R1);
	}

	const Registers &registers_;
	std::string &why_;
	Assembler code_;
	Assembler::Label accept_;
	size_t depth_ = 0;
};

} // namespace

std::vector<bpf_insn> translate(const std::vector<Expression> &conditions,
				const Registers &registers, std::string &why)
{
	Translator translator(registers, why);

	for (const Expression &condition : conditions)
		if (!translator.condition(condition))
			return {};
	return translator.finish();
}
