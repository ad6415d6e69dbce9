// SPDX-License-Identifier: GPL-2.0
/*
 * The programs that the tests attach. No CO-RE and no vmlinux.h: they load on a kernel without
 * BTF. The globals are one memory-mapped array, so a test steers and reads them without system
 * calls, from a signal handler too.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "filter.h"

__u32 verdict; /* what the program returns when the condition holds; else it returns 0 */
__u32 condition; /* enum filter_condition */
__u64 wanted; /* what the argument or the address is compared with */
__u32 task; /* tgid whose tracepoint and kprobe hits count: these programs see all tasks */
__u64 runs;

SEC("perf_event")
int on_overflow(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	if (condition == FILTER_ARGUMENT && PT_REGS_PARM1(&ctx->regs) != wanted)
		return 0;
	if (condition == FILTER_ADDRESS && ctx->addr != wanted)
		return 0;
	return verdict;
}

static __always_inline int on_trace(void)
{
	if (bpf_get_current_pid_tgid() >> 32 != task)
		return 1;
	__sync_fetch_and_add(&runs, 1);
	return verdict;
}

SEC("tracepoint")
int on_tracepoint(void *ctx)
{
	(void)ctx;
	return on_trace();
}

SEC("kprobe")
int on_kprobe(void *ctx)
{
	(void)ctx;
	return on_trace();
}

char LICENSE[] SEC("license") = "GPL";
