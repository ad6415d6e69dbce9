/* SPDX-License-Identifier: GPL-2.0 */
/* ptrace(2) of a child. */
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>

#include <cstdint>

/* Stops, with SIGSTOP, for the parent to trace the caller. One that is traced already cannot. */
void stop_for_tracer();

/* Of a tracee that has stopped, and is no 32-bit one. lib/arch.h knows what is in them. */
user_regs_struct registers_of(pid_t pid);

/* Where a tracee has stopped, a 32-bit one as well. */
uint64_t where_is(pid_t pid);
