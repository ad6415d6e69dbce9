// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Checks whether a BPF program can reject hits of a debugger's breakpoints on this kernel. This is
 * one file of system calls, for a debugger to copy. Check at run time, because the version says
 * little about a patched kernel. If the answer is "no", a debugger should fall back to what it did
 * before, and not exit.
 *
 * Exit code 0: yes; 1: the kernel still sends a signal for a rejected hit; 2: something is missing,
 * and the output says what.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__
#define EXECUTE_LENGTH sizeof(long)
#else
#define EXECUTE_LENGTH 4
#endif

static const char still_sent[] = "no: the kernel sends a signal for a hit that is rejected\n";
static volatile sig_atomic_t signals;

static void count_signal(int sig)
{
	signals += sig == SIGTRAP || sig == SIGIO;
	if (signals > 1000) /* arm64 without the series: the hit repeats after each signal */
		_exit(write(STDOUT_FILENO, still_sent, sizeof(still_sent) - 1) ? 1 : 2);
}

__attribute__((noinline)) static void hit(void)
{
	__asm__ volatile("");
}

static int missing(const char *what, int err)
{
	printf("no: %s%s%s\n", what, err ? ": " : "", err ? strerror(err) : "");
	return 2;
}

/* perf_event_open(2) of a breakpoint on hit(). */
static int open_breakpoint(int sigtrap)
{
	struct perf_event_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.size = sizeof(attr);
	attr.type = PERF_TYPE_BREAKPOINT;
	attr.bp_type = HW_BREAKPOINT_X;
	attr.bp_addr = (uintptr_t)hit;
	attr.bp_len = EXECUTE_LENGTH;
	attr.sample_period = 1;
	attr.disabled = 1;
	attr.exclude_kernel = 1; /* otherwise perf_event_paranoid must be below 2 */
	attr.exclude_hv = 1;
	attr.sigtrap = sigtrap;
	attr.remove_on_exec = sigtrap; /* sigtrap requires it */
	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int no_breakpoint(int err)
{
	switch (err) {
	case ENOSYS:
		return missing("no perf events, or a seccomp filter hides them", err);
	case EACCES:
		return missing("kernel.perf_event_paranoid is above 2, or an LSM denies the event; "
			       "lower it, or grant CAP_PERFMON (Debian: CAP_SYS_ADMIN)", err);
	case EPERM:
		return missing("a seccomp filter or an LSM denies perf_event_open()", err);
	case ENOSPC:
		return missing("all breakpoints of this thread or CPU are in use", err);
	case ENOENT:
	case ENODEV:
	case EOPNOTSUPP:
		return missing("the machine has no hardware breakpoints", err);
	default:
		return missing("the kernel cannot open a breakpoint", err);
	}
}

static int no_program(int err)
{
	switch (err) {
	case ENOSYS:
		return missing("the kernel has no bpf(), or a seccomp filter hides it", err);
	case EPERM:
		return missing("loading a program requires CAP_BPF and CAP_PERFMON (before Linux "
			       "5.11 also a larger RLIMIT_MEMLOCK)", err);
	case EACCES:
		return missing("an LSM denies bpf()", err);
	default:
		return missing("the kernel cannot load a program of type perf_event", err);
	}
}

int main(void)
{
	/* r0 = 0; exit: reject each hit. A debugger compares the registers at R1. */
	static const struct bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr attr;
	uint64_t hits = 0;
	int event = open_breakpoint(1), sigtrap = event >= 0, program;

	if (!sigtrap)
		event = open_breakpoint(0);
	if (event < 0)
		return no_breakpoint(errno);
	if (!sigtrap)
		puts("the kernel has no attr.sigtrap, which came with Linux 5.13: use O_ASYNC");

	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_PERF_EVENT;
	attr.insns = (uintptr_t)insns;
	attr.insn_cnt = sizeof(insns) / sizeof(insns[0]);
	attr.license = (uintptr_t)"GPL"; /* the helpers that read memory require it */
	program = syscall(SYS_bpf, BPF_PROG_LOAD, &attr, sizeof(attr));
	if (program < 0)
		return no_program(errno);
	if (ioctl(event, PERF_EVENT_IOC_SET_BPF, program))
		return missing("the program cannot be attached to the breakpoint", errno);

	signal(SIGTRAP, count_signal);
	signal(SIGIO, count_signal);
	if (fcntl(event, F_SETOWN, getpid()) || fcntl(event, F_SETFL, O_ASYNC))
		return missing("O_ASYNC cannot be set for the breakpoint", errno);
	ioctl(event, PERF_EVENT_IOC_ENABLE, 0);
	hit();
	ioctl(event, PERF_EVENT_IOC_DISABLE, 0);
	if (read(event, &hits, sizeof(hits)) != sizeof(hits) || hits != 1)
		return missing("breakpoints can be opened but are not hit", 0);
	fputs(signals ? still_sent : "yes\n", stdout);
	return signals != 0;
}
