/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by filter.bpf.c and user space: the conditions of the programs, and what they report. */
#ifndef FILTER_H
#define FILTER_H

enum filter_condition {
	FILTER_ALWAYS,
	FILTER_ARGUMENT, /* the first argument of the function that was hit */
	FILTER_ADDRESS, /* ctx->addr, which is attr.bp_addr for a breakpoint */
	FILTER_VALUE, /* the u64 in user memory at ctx->addr */
};

#define FILTER_FRAMES 8
#define FILTER_LONGEST 1000 /* maximum of iterations, because the verifier requires a bound */
#define FILTER_BLOCK 65536 /* bytes that an iteration of WORKS copies */

/* The context and state that a program saw when it ran. */
struct filter_snapshot {
	unsigned long long ip, argument; /* ctx->regs */
	unsigned long long addr, period; /* ctx->addr, ctx->sample_period */
	unsigned long long stray; /* number of all runs in which ctx->addr was not 0 */
	unsigned long long count; /* bpf_perf_prog_read_value(): the count with this hit */
	unsigned long long cookie; /* bpf_get_attach_cookie() */
	unsigned long long wrong_cookies; /* number of all runs that saw an unexpected cookie */
	unsigned long long sample_flags; /* PERF_SAMPLE_* bits that are filled in */
	long long stack_bytes; /* return value of bpf_get_stack() */
	long long stack_id; /* return value of bpf_get_stackid() */
	long long err; /* return value of the helper that makes the kernel unwind another stack */
	unsigned long long stack[FILTER_FRAMES];
};

#endif
