// SPDX-License-Identifier: GPL-2.0
#include "lib/ptrace.h"

#include <elf.h>
#include <signal.h>
#include <sys/uio.h>

#include <cerrno>

#include "lib/fail.h"

void stop_for_tracer()
{
	if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr))
		setup_failed("PTRACE_TRACEME", errno);
	raise(SIGSTOP);
}

user_regs_struct registers_of(pid_t pid)
{
	user_regs_struct registers;
	iovec whole = { &registers, sizeof(registers) };

	if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &whole))
		setup_failed("PTRACE_GETREGSET", errno);
	return registers;
}
