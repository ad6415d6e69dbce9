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

/* For a debugger that wants to return to the arrival with these registers. */
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

/*
 * For a debugger that looks for one arrival among many. They compare all registers even if the
 * first one differs. Not a loop, which the compiler might not unroll.
 */
#define DIFFERENT(i) (REGISTER(ctx, i) ^ registers[i])
#define DIFFERENT_4(i) DIFFERENT(i) | DIFFERENT(i + 1) | DIFFERENT(i + 2) | DIFFERENT(i + 3)
#define COMPARES(name, different)                                                                  \
	SEC("perf_event")                                                                          \
	int name(struct bpf_perf_event_data *ctx)                                                  \
	{                                                                                          \
		return !(different);                                                               \
	}

COMPARES(compares_1, DIFFERENT(0))
COMPARES(compares_2, DIFFERENT(0) | DIFFERENT(1))
COMPARES(compares_4, DIFFERENT_4(0))
COMPARES(compares_8, DIFFERENT_4(0) | DIFFERENT_4(4))
COMPARES(compares_registers, DIFFERENT_4(0) | DIFFERENT_4(4) | DIFFERENT_4(8) | DIFFERENT_4(12))

/* A profile that is made in the kernel, see uses/profile.cc. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} profile SEC(".maps");

__u64 profiled;

SEC("perf_event")
int profiles(struct bpf_perf_event_data *ctx)
{
	__u64 ip = PT_REGS_IP(&ctx->regs), one = 1, *count;

	__sync_fetch_and_add(&profiled, 1);
	count = bpf_map_lookup_elem(&profile, &ip);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&profile, &ip, &one, BPF_NOEXIST);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
