// SPDX-License-Identifier: GPL-2.0
/*
 * The programs whose price perf_bpf_bench.cc measures. They do nothing else, not even count their
 * runs: what they cost is what it costs to call them.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>

__u32 verdict;
__u64 registers[16]; /* what compares_registers wants */

SEC("perf_event")
int answers(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	return verdict;
}

/* As a debugger that looks for one arrival among many; it compares all, whatever the first says. */
SEC("perf_event")
int compares_registers(struct bpf_perf_event_data *ctx)
{
	const bpf_user_pt_regs_t *r = &ctx->regs;

#ifdef __TARGET_ARCH_x86
	return !((r->rax ^ registers[0]) | (r->rbx ^ registers[1]) | (r->rcx ^ registers[2]) |
		 (r->rdx ^ registers[3]) | (r->rsi ^ registers[4]) | (r->rdi ^ registers[5]) |
		 (r->rbp ^ registers[6]) | (r->rsp ^ registers[7]) | (r->r8 ^ registers[8]) |
		 (r->r9 ^ registers[9]) | (r->r10 ^ registers[10]) | (r->r11 ^ registers[11]) |
		 (r->r12 ^ registers[12]) | (r->r13 ^ registers[13]) | (r->r14 ^ registers[14]) |
		 (r->r15 ^ registers[15]));
#else
	__u64 different = 0;

	for (int i = 0; i < 16; i++)
		different |= r->regs[i] ^ registers[i];
	return !different;
#endif
}

char LICENSE[] SEC("license") = "GPL";
