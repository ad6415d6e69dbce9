// SPDX-License-Identifier: GPL-2.0
#include "gdb/registers.h"

#include <sys/user.h>

#include <cstddef>
#include <cstdlib>

/* The context begins with the registers of the task, in the layout that ptrace(2) has, too. */
#define AT(name, field)                                                                            \
	Register                                                                                   \
	{                                                                                          \
		name, offsetof(user_regs_struct, field)                                            \
	}

#if defined(__x86_64__)
static constexpr char ARCHITECTURE[] = "<architecture>i386:x86-64</architecture>", PC[] = "rip";

static Register located(const std::string &name)
{
	static const Register known[] = {
		AT("rax", rax), AT("rbx", rbx),
		AT("rcx", rcx), AT("rdx", rdx),
		AT("rsi", rsi), AT("rdi", rdi),
		AT("rbp", rbp), AT("rsp", rsp),
		AT("r8", r8),	AT("r9", r9),
		AT("r10", r10), AT("r11", r11),
		AT("r12", r12), AT("r13", r13),
		AT("r14", r14), AT("r15", r15),
		AT("rip", rip), { "eflags", offsetof(user_regs_struct, eflags), 32 },
	};

	for (const Register &r : known)
		if (r.name == name)
			return r;
	return { name };
}
#elif defined(__aarch64__)
static constexpr char ARCHITECTURE[] = "<architecture>aarch64</architecture>", PC[] = "pc";

static Register located(const std::string &name)
{
	static const Register known[] = {
		AT("sp", sp),
		AT("pc", pc),
		{ "cpsr", offsetof(user_regs_struct, pstate), 32 },
	};

	for (const Register &r : known)
		if (r.name == name)
			return r;
	for (int i = 0; i < 31; i++)
		if (name == "x" + std::to_string(i))
			return { name, int16_t(offsetof(user_regs_struct, regs) + 8 * i) };
	return { name };
}
#else
#error "gdb/registers.cc does not know this architecture"
#endif

static std::string attribute(std::string_view element, std::string_view name)
{
	const std::string begin = " " + std::string(name) + "=\"";
	size_t at = element.find(begin);

	if (at == element.npos)
		return "";
	at += begin.size();
	return std::string(element.substr(at, element.find('"', at) - at));
}

Registers::Registers(std::string_view description)
{
	constexpr size_t MOST = 4096;
	size_t number = 0;

	if (description.find(ARCHITECTURE) == description.npos)
		return;
	for (size_t at = 0; (at = description.find("<reg ", at)) != description.npos; at++) {
		const std::string_view element =
			description.substr(at, description.find('>', at) - at);
		const std::string regnum = attribute(element, "regnum");

		if (!regnum.empty())
			number = strtoul(regnum.c_str(), nullptr, 0);
		if (number >= MOST)
			break;
		if (all_.size() <= number)
			all_.resize(number + 1);
		all_[number++] = located(attribute(element, "name"));
	}
}

const Register *Registers::find(uint64_t number) const
{
	return number < all_.size() && all_[number].offset >= 0 ? &all_[number] : nullptr;
}

std::optional<uint64_t> Registers::pc() const
{
	for (size_t i = 0; i < all_.size(); i++)
		if (all_[i].name == PC)
			return i;
	return {};
}
