/* SPDX-License-Identifier: GPL-2.0 */
/* What the programs in filter.bpf.c can be asked to look at before they give their verdict. */
#ifndef FILTER_H
#define FILTER_H

enum filter_condition {
	FILTER_ALWAYS,
	FILTER_ARGUMENT, /* the first argument of the function that was hit */
	FILTER_ADDRESS, /* ctx->addr, which for a breakpoint is attr.bp_addr */
	FILTER_VALUE, /* the u64 in user memory at ctx->addr */
};

#define FILTER_FRAMES 8
#define FILTER_LONGEST 1000 /* turns of a loop: the verifier wants an end to every one */
#define FILTER_BLOCK 65536 /* bytes that a turn of WORKS copies */

/* What a program saw when it ran. */
struct filter_look {
	unsigned long long ip, argument; /* ctx->regs */
	unsigned long long addr, period; /* ctx->addr, ctx->sample_period */
	unsigned long long stray; /* runs, of all so far, whose ctx->addr was not 0 */
	unsigned long long count; /* bpf_perf_prog_read_value(): the event's, this hit included */
	unsigned long long cookie; /* bpf_get_attach_cookie() */
	unsigned long long wrong_cookies; /* runs, of all so far, that saw one not wanted */
	unsigned long long sample_flags; /* PERF_SAMPLE_* of the kernel's sample that are filled in */
	long long stack_bytes; /* what bpf_get_stack() returned */
	long long stack_id; /* what bpf_get_stackid() returned */
	long long err; /* what the last helper returned that unwinds a stack, or has one unwound */
	unsigned long long stack[FILTER_FRAMES];
};

#endif
