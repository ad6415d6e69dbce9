// SPDX-License-Identifier: GPL-2.0
#include "lib/ptrace.h"

#include <elf.h>
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <cerrno>

#include "lib/arch.h"
#include "lib/fail.h"

void stop_for_tracer()
{
	if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr))
		setup_failed("PTRACE_TRACEME", errno);
	raise(SIGSTOP);
}

/* NT_PRSTATUS of a tracee: a 32-bit one has fewer registers, of 32 bits each. */
union Registers {
	user_regs_struct native;
	uint32_t compat[sizeof(native) / sizeof(uint32_t)];
};

static bool get_registers(pid_t pid, Registers &registers)
{
	iovec whole = { &registers, sizeof(registers) };

	if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &whole))
		setup_failed("PTRACE_GETREGSET", errno);
	return whole.iov_len == sizeof(registers.native);
}

user_regs_struct registers_of(pid_t pid)
{
	Registers registers;

	get_registers(pid, registers);
	return registers.native;
}

uint64_t where_is(pid_t pid)
{
	Registers registers;

	return get_registers(pid, registers) ? pc_of(registers.native)
					     : registers.compat[COMPAT_PC];
}

static void set_registers(pid_t pid, const Registers &registers, bool native)
{
	Registers copy = registers;
	iovec whole = { &copy, native ? sizeof(copy.native) : COMPAT_REGISTERS * sizeof(uint32_t) };

	if (ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &whole))
		setup_failed("PTRACE_SETREGSET", errno);
}

void set_registers(pid_t pid, const user_regs_struct &registers)
{
	set_registers(pid, { .native = registers }, true);
}

uint64_t Tracee::flags() const
{
	Registers registers;

	return get_registers(pid(), registers) ? flags_of(registers.native)
					       : registers.compat[COMPAT_FLAGS];
}

void Tracee::write_registers() const
{
	Registers registers;
	const bool native = get_registers(pid(), registers);

	set_registers(pid(), registers, native);
}

void Tracee::set_pc(uint64_t at) const
{
	Registers registers;
	const bool native = get_registers(pid(), registers);

	if (native)
		pc_of(registers.native) = at;
	else
		registers.compat[COMPAT_PC] = at;
	set_registers(pid(), registers, native);
}

void Tracee::inject(uint64_t at)
{
	Registers saved;
	const bool native = get_registers(pid(), saved);

	set_pc(at);
	if (resume(PTRACE_SINGLESTEP))
		set_registers(pid(), saved, native);
}

bool Tracee::has_stopped_by(int sig) const
{
	return WIFSTOPPED(status_) && WSTOPSIG(status_) == sig;
}

bool Tracee::resume(__ptrace_request how, int sig)
{
	if (ptrace(how, pid(), nullptr, sig))
		setup_failed("ptrace", errno);
	status_ = child_.wait();
	return WIFSTOPPED(status_);
}
