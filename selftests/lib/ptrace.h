/* SPDX-License-Identifier: GPL-2.0 */
/* ptrace(2) of a child. */
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#include <cstdint>

#include "lib/child.h"

/* Stops, with SIGSTOP, for the parent to trace the caller. One that is traced already cannot. */
void stop_for_tracer();

/* Of a tracee that has stopped, and is no 32-bit one. lib/arch.h knows what is in them. */
user_regs_struct registers_of(pid_t pid);

/* Where a tracee has stopped, a 32-bit one as well. */
uint64_t where_is(pid_t pid);

/* A child that waits, traced by us, before it runs @body; setup_failed() if ptrace(2) is refused. */
class TracedChild {
public:
	template <typename Body>
	explicit TracedChild(Body body)
		: child_([=] {
			stop_for_tracer();
			return body();
		})
	{
		status_ = child_.wait();
	}

	pid_t pid() const { return child_.pid(); }
	/* As wait(2) had it at its last stop, or its end. */
	int status() const { return status_; }
	bool has_stopped_by(int sig) const;
	uint64_t pc() const { return where_is(pid()); }
	/* As they are. */
	void write_registers() const;

	/* Whether it has stopped again; else it has ended. @sig is delivered to it. */
	bool resume(__ptrace_request how, int sig = 0);

private:
	Child child_;
	int status_;
};
