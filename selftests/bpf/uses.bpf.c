// SPDX-License-Identifier: GPL-2.0
/*
 * The programs of the examples. The return value is the whole interface: 0 rejects the hit, which
 * then has no side effect, and any other value delivers it. The programs use neither CO-RE nor
 * vmlinux.h, so they load on a kernel without BTF.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

static __always_inline __u32 thread(void)
{
	return bpf_get_current_pid_tgid();
}

/* uses/seek.cc: accepts the nth arrival at which all registers that matter have their values. */
__u64 seek_values[4]; /* of the registers of the first four arguments */
__u32 seek_matters; /* bit i: seek_values[i] is compared */
__u64 seek_nth, seek_seen;

SEC("perf_event")
int seek(struct bpf_perf_event_data *ctx)
{
	bpf_user_pt_regs_t *regs = &ctx->regs;

	if (seek_matters & 1 && PT_REGS_PARM1(regs) != seek_values[0])
		return 0;
	if (seek_matters & 2 && PT_REGS_PARM2(regs) != seek_values[1])
		return 0;
	if (seek_matters & 4 && PT_REGS_PARM3(regs) != seek_values[2])
		return 0;
	if (seek_matters & 8 && PT_REGS_PARM4(regs) != seek_values[3])
		return 0;
	return ++seek_seen == seek_nth;
}

/* uses/watchpoint.cc: accepts a write by a thread other than the owner, or of a forbidden value. */
__u32 watch_owner;
__u64 watch_forbidden;
__u64 watch_writes;

SEC("perf_event")
int watch(struct bpf_perf_event_data *ctx)
{
	__u64 value = 0;

	__sync_fetch_and_add(&watch_writes, 1);
	if (thread() != watch_owner)
		return 1;
	/* The write is done, so memory has the new value. Accept if it cannot be read. */
	return bpf_probe_read_user(&value, sizeof(value), (void *)ctx->addr) ||
	       value == watch_forbidden;
}

/* uses/profile.cc: counts how often a clock interrupts the CPU at each address of a range. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u64);
} profile_counts SEC(".maps");

__u64 profile_from, profile_to; /* the range; profile_to is the first address after it */
__u64 profile_inside, profile_user, profile_kernel, profile_idle;

SEC("perf_event")
int profile(struct bpf_perf_event_data *ctx)
{
	__u64 ip = PT_REGS_IP(&ctx->regs), one = 1, *count;

	/* Kernel addresses are in the upper half, and the idle task has id 0. */
	__sync_fetch_and_add((__s64)ip < 0 ? &profile_kernel : &profile_user, 1);
	if (!thread())
		__sync_fetch_and_add(&profile_idle, 1);
	if (ip < profile_from || ip >= profile_to)
		return 0;
	__sync_fetch_and_add(&profile_inside, 1);
	count = bpf_map_lookup_elem(&profile_counts, &ip);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&profile_counts, &ip, &one, BPF_NOEXIST);
	return 0;
}

/* uses/hotpatch.cc: accepts calls that the change concerns: with an argument above 0. */
__u64 hotpatch_calls;

SEC("perf_event")
int hotpatch(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&hotpatch_calls, 1);
	return PT_REGS_PARM1(&ctx->regs) != 0;
}

/* uses/safepoint.cc: accepts polls by one thread, or by all but one. */
__u32 safepoint_only, safepoint_except;
__u64 safepoint_polls;

SEC("perf_event")
int safepoint(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	__sync_fetch_and_add(&safepoint_polls, 1);
	if (safepoint_only)
		return thread() == safepoint_only;
	return thread() != safepoint_except;
}

/* uses/throttle.cc: accepts events in a range of addresses beyond a budget of all threads. */
__u64 throttle_from, throttle_to;
__u64 throttle_budget, throttle_used;

SEC("perf_event")
int throttle(struct bpf_perf_event_data *ctx)
{
	if (ctx->addr < throttle_from || ctx->addr >= throttle_to)
		return 0;
	return __sync_fetch_and_add(&throttle_used, 1) >= throttle_budget;
}

/* uses/one_shot.cc: accepts calls whose first argument, a size, is large. */
__u64 one_shot_least;

SEC("perf_event")
int one_shot(struct bpf_perf_event_data *ctx)
{
	return PT_REGS_PARM1(&ctx->regs) >= one_shot_least;
}

char LICENSE[] SEC("license") = "GPL";
