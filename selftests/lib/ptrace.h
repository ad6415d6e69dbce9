/* SPDX-License-Identifier: GPL-2.0 */
/* ptrace(2) of a child. */
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#include <cstdint>

#include "lib/child.h"

/* Makes the parent trace the caller, which must not be traced yet, and stops by SIGSTOP. */
void stop_for_tracer();

/* The registers of a stopped 64-bit tracee. See lib/arch.h for their meaning. */
user_regs_struct registers_of(pid_t pid);
void set_registers(pid_t pid, const user_regs_struct &registers);

/* The pc of a stopped tracee, which may be a 32-bit one. */
uint64_t where_is(pid_t pid);

/*
 * A child that is traced by the caller and has stopped before it runs @body; setup_failed() if
 * ptrace(2) is refused.
 */
class Tracee {
public:
	template <typename Body>
	explicit Tracee(Body body)
		: child_([=] {
			stop_for_tracer();
			return body();
		})
	{
		status_ = child_.wait();
	}

	pid_t pid() const { return child_.pid(); }
	/* The status of waitpid(2) for its last stop or its exit. */
	int status() const { return status_; }
	bool has_stopped_by(int sig) const;
	uint64_t pc() const { return where_is(pid()); }
	/* Its flags as NT_PRSTATUS shows them: EFLAGS, pstate or CPSR. */
	uint64_t flags() const;
	/* Writes the registers back unchanged. */
	void write_registers() const;
	void set_pc(uint64_t at) const;
	/* Single-steps it through the instruction at @at, and restores the registers. */
	void inject(uint64_t at);

	/* Resumes it with @sig, and waits. Returns true if it stopped, false if it ended. */
	bool resume(__ptrace_request how, int sig = 0);

private:
	Child child_;
	int status_;
};
