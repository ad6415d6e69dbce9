// SPDX-License-Identifier: GPL-2.0
/*
 * The programs of perf_bpf_stress: one that decides by a rule and counts, and two on kprobes that
 * disturb hits.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "stress.h"

/* Set before loading, so that the verifier of a kernel without the helper removes the call. */
const volatile __u32 knows_cookies;

__u64 seed, mask, cookie;
__u64 from_memory; /* use @value, because the registers of the hit are those of the kernel */
__u64 value;

__u64 runs, accepted, accepted_sum, wrong_cookies;

SEC("perf_event")
int decides(struct bpf_perf_event_data *ctx)
{
	__u64 hit_value = PT_REGS_PARM1(&ctx->regs);

	/* Otherwise clang selects between two addresses, and the verifier refuses that for ctx. */
	asm volatile("" : "+r"(hit_value));
	if (from_memory)
		hit_value = value;
	__sync_fetch_and_add(&runs, 1);
	if (knows_cookies && bpf_get_attach_cookie(ctx) != cookie)
		__sync_fetch_and_add(&wrong_cookies, 1);
	if (!accepts(seed, hit_value, mask))
		return 0;
	__sync_fetch_and_add(&accepted, 1);
	__sync_fetch_and_add(&accepted_sum, hit_value);
	return hit_value << 1 | 1; /* anything but 0 */
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u64);
	__type(value, __u64);
} steps SEC(".maps");

/* On kernel functions that handle hits, in all tasks. */
SEC("kprobe")
int steps_in(void *ctx)
{
	__u64 key = bpf_get_prandom_u32() % 64, now = bpf_ktime_get_ns();

	(void)ctx;
	bpf_map_update_elem(&steps, &key, &now, BPF_ANY);
	return 1;
}

__u64 reader; /* tgid */
__u64 watched; /* address */
__u64 reads;

/* Reads the word that its own task watches, which is a hit while a program runs. */
SEC("kprobe")
int reads_watched(void *ctx)
{
	__u8 byte;

	(void)ctx;
	if (bpf_get_current_pid_tgid() >> 32 != reader)
		return 1;
	if (!bpf_probe_read_user(&byte, sizeof(byte), (void *)watched))
		__sync_fetch_and_add(&reads, 1);
	return 1;
}

char LICENSE[] SEC("license") = "GPL";
