/* SPDX-License-Identifier: GPL-2.0 */
/* Where a BPF program finds the registers that gdb names by number. */
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct Register {
	std::string name;
	int16_t offset = -1; /* in the context of the program, if it is there */
	uint8_t bits = 64;
};

/*
 * gdb and gdbserver number registers in the order of the target description, an XML document that
 * gdb reads by qXfer:features:read.
 */
class Registers {
public:
	Registers() = default;
	/* Not known() for another architecture than that of this program: i386 on x86-64, say. */
	explicit Registers(std::string_view description);

	bool known() const { return !all_.empty(); }
	/* None for a register that the context does not have. */
	const Register *find(uint64_t number) const;
	/* The number of the program counter. */
	std::optional<uint64_t> pc() const;

private:
	std::vector<Register> all_;
};
