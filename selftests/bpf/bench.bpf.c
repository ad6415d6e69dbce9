// SPDX-License-Identifier: GPL-2.0
/*
 * The programs whose cost perf_bpf_bench measures. They do not even count their runs, so that their
 * cost is mainly that of calling them.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <linux/signal.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

__u32 verdict;
__u64 wanted; /* value of the first argument or of the watched word */
__u64 registers[16]; /* wanted by compares_registers(), in the order of REGISTER() */

SEC("perf_event")
int answers(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	return verdict;
}

SEC("perf_event")
int matches(struct bpf_perf_event_data *ctx)
{
	return PT_REGS_PARM1(&ctx->regs) == wanted;
}

/* After a write, memory has the new value. Accept if it cannot be read. */
SEC("perf_event")
int watches(struct bpf_perf_event_data *ctx)
{
	__u64 value = 0;

	return bpf_probe_read_user(&value, sizeof(value), (void *)ctx->addr) || value == wanted;
}

/* For a uprobe. */
SEC("kprobe")
int signals(struct pt_regs *ctx)
{
	if (PT_REGS_PARM1(ctx) == wanted)
		bpf_send_signal_thread(SIGUSR1);
	return 0;
}

/* The general registers: on x86 the first fifteen in pt_regs and the stack pointer. */
#ifdef __TARGET_ARCH_x86
#define REGISTER(ctx, i) (((const __u64 *)&(ctx)->regs)[(i) < 15 ? (i) : 19])
#else
#define REGISTER(ctx, i) ((ctx)->regs.regs[i])
#endif

/* For a debugger that later looks for the arrival with these registers. */
SEC("perf_event")
int notes_registers(struct bpf_perf_event_data *ctx)
{
	if (PT_REGS_PARM1(&ctx->regs) != wanted)
		return 0;
#pragma clang loop unroll(full)
	for (int i = 0; i < 15; i++)
		registers[i] = REGISTER(ctx, i);
	registers[15] = REGISTER(ctx, 15);
	return 0;
}

#define DIFFERENT(i) (REGISTER(ctx, i) ^ registers[i])
#define DIFFERENT_4(i) DIFFERENT(i) | DIFFERENT(i + 1) | DIFFERENT(i + 2) | DIFFERENT(i + 3)
/*
 * For a debugger that looks for one arrival among many. Compares all registers even if the first
 * one differs. Not a loop, which the compiler might not unroll.
 */
SEC("perf_event")
int compares_registers(struct bpf_perf_event_data *ctx)
{
	return !(DIFFERENT_4(0) | DIFFERENT_4(4) | DIFFERENT_4(8) | DIFFERENT_4(12));
}

char LICENSE[] SEC("license") = "GPL";
