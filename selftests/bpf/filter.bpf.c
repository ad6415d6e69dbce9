// SPDX-License-Identifier: GPL-2.0
/*
 * The programs that the tests attach. They use neither CO-RE nor vmlinux.h, so they load on a
 * kernel without BTF. The globals are in a memory-mapped array, so that tests can access them
 * without system calls, even from a signal handler.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <asm/unistd.h>
#include <linux/signal.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "filter.h"

__u32 verdict; /* the return value if the condition is true; otherwise it is 0 */
__u32 condition; /* enum filter_condition */
__u64 wanted; /* the argument, address or value to compare with */
__u32 tgid; /* programs on tracepoints and kprobes see the hits of all tasks */
__u64 runs;
__u64 spin_ns; /* nanoseconds that checks_cookie() takes */
__u64 work; /* iterations of works() */
struct filter_snapshot snapshot; /* of the last run */

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} values SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 64);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, 16 * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} outputs SEC(".maps");

struct filter_block {
	char bytes[FILTER_BLOCK];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_block);
} blocks SEC(".maps");

SEC("perf_event")
int on_overflow(struct bpf_perf_event_data *ctx)
{
	__u64 value = 0;

	__sync_fetch_and_add(&runs, 1);
	if (condition == FILTER_ARGUMENT && PT_REGS_PARM1(&ctx->regs) != wanted)
		return 0;
	if (condition == FILTER_ADDRESS && ctx->addr != wanted)
		return 0;
	if (condition == FILTER_VALUE &&
	    (bpf_probe_read_user(&value, sizeof(value), (void *)ctx->addr) || value != wanted))
		return 0;
	return verdict;
}

SEC("perf_event")
int looks(struct bpf_perf_event_data *ctx)
{
	struct bpf_perf_event_value event = {};

	__sync_fetch_and_add(&runs, 1);
	snapshot.ip = PT_REGS_IP(&ctx->regs);
	snapshot.argument = PT_REGS_PARM1(&ctx->regs);
	snapshot.addr = ctx->addr;
	snapshot.stray += snapshot.addr != 0;
	snapshot.period = ctx->sample_period;
	if (!bpf_perf_prog_read_value(ctx, &event, sizeof(event)))
		snapshot.count = event.counter;
	return verdict;
}

SEC("perf_event")
int reads_cookie(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	snapshot.cookie = bpf_get_attach_cookie(ctx);
	return verdict;
}

/*
 * All attachments have the same cookie, so any other one is wrong. Slow, so that the event can
 * change on another CPU while the program runs.
 */
SEC("perf_event")
int checks_cookie(struct bpf_perf_event_data *ctx)
{
	__u64 first = bpf_get_attach_cookie(ctx), begin = bpf_ktime_get_ns();

	__sync_fetch_and_add(&runs, 1);
	for (int i = 0; i < FILTER_LONGEST && bpf_ktime_get_ns() - begin < spin_ns; i++)
		;
	if (first != wanted || bpf_get_attach_cookie(ctx) != wanted)
		__sync_fetch_and_add(&snapshot.wrong_cookies, 1);
	return verdict;
}

/* Runs for a long time with few instructions for the verifier: each iteration copies a block. */
SEC("perf_event")
int works(struct bpf_perf_event_data *ctx)
{
	__u32 slot = 0;
	struct filter_block *block = bpf_map_lookup_elem(&blocks, &slot);

	(void)ctx;
	__sync_fetch_and_add(&runs, 1);
	for (__u64 i = 0; block && i < FILTER_LONGEST && i < work; i++)
		bpf_probe_read_user(block, sizeof(*block), (void *)wanted);
	return verdict;
}

SEC("perf_event")
int gets_stack(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	snapshot.addr = ctx->addr;
	snapshot.stray += snapshot.addr != 0;
	snapshot.stack_bytes =
		bpf_get_stack(ctx, snapshot.stack, sizeof(snapshot.stack), BPF_F_USER_STACK);
	return verdict;
}

SEC("perf_event")
int gets_stack_id(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	snapshot.stack_id = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK | BPF_F_REUSE_STACKID);
	return verdict;
}

/*
 * The next programs get one frame of the stack, for which the kernel takes the callchain of the
 * sample before they run, and then make the kernel unwind another stack into the same buffer.
 */
static __always_inline void get_one_frame(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	snapshot.stack_bytes =
		bpf_get_stack(ctx, snapshot.stack, sizeof(snapshot.stack[0]), BPF_F_USER_STACK);
}

SEC("perf_event")
int gets_frame(struct bpf_perf_event_data *ctx)
{
	get_one_frame(ctx);
	return verdict;
}

SEC("perf_event")
int outputs_sample(struct bpf_perf_event_data *ctx)
{
	__u64 value = 0;

	get_one_frame(ctx);
	snapshot.err = bpf_perf_event_output(ctx, &outputs, 0, &value, sizeof(value));
	return verdict;
}

static __always_inline long print(void)
{
	static const char text[] = "perf_bpf_filter";

	return bpf_trace_printk(text, sizeof(text));
}

SEC("perf_event")
int prints(struct bpf_perf_event_data *ctx)
{
	get_one_frame(ctx);
	snapshot.err = print();
	return verdict;
}

/* Does not read the stack. */
SEC("perf_event")
int prints_alone(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	__sync_fetch_and_add(&runs, 1);
	snapshot.err = print();
	return verdict;
}

SEC("perf_event")
int gets_task_stack(struct bpf_perf_event_data *ctx)
{
	__u64 frames[FILTER_FRAMES];

	get_one_frame(ctx);
	snapshot.err = bpf_get_task_stack(bpf_get_current_task_btf(), frames, sizeof(frames), 0);
	return verdict;
}

SEC("perf_event")
int fills_ringbuf(struct bpf_perf_event_data *ctx)
{
	__u64 value = PT_REGS_PARM1(&ctx->regs);

	__sync_fetch_and_add(&runs, 1);
	bpf_ringbuf_output(&values, &value, sizeof(value), 0);
	return verdict;
}

SEC("perf_event")
int tail_calls(struct bpf_perf_event_data *ctx)
{
	bpf_tail_call(ctx, &targets, 0);
	return 0;
}

/* struct bpf_perf_event_data_kern, which ctx points to, has pointers to regs, data and event. */
static __always_inline void read_sample(void *ctx)
{
	const void *sample = 0;

	bpf_probe_read_kernel(&sample, sizeof(sample), ctx + sizeof(void *));
	bpf_probe_read_kernel(&snapshot.sample_flags, sizeof(snapshot.sample_flags), sample);
}

SEC("perf_event")
int reads_sample(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	read_sample(ctx);
	return verdict;
}

/* A pointer contains zeroes, so read each byte separately. */
SEC("perf_event")
int reads_sample_text(struct bpf_perf_event_data *ctx)
{
	const void *sample = 0;
	char text[2] = {};

	__sync_fetch_and_add(&runs, 1);
	for (int i = 0; i < (int)sizeof(sample); i++) {
		bpf_probe_read_kernel_str(text, sizeof(text), (void *)ctx + sizeof(void *) + i);
		sample = (void *)((__u64)sample | (__u64)(unsigned char)text[0] << 8 * i);
	}
	bpf_probe_read_kernel_str(&snapshot.sample_flags, sizeof(snapshot.sample_flags), sample);
	return verdict;
}

/* Only the members that are used. The verifier finds the kernel's types by these names. */
struct perf_sample_data {
	__u64 sample_flags;
};

struct bpf_perf_event_data_kern {
	void *regs;
	struct perf_sample_data *data;
};

/* Not static: the verifier takes argument types from the declaration of global functions only. */
__noinline int looks_at_untrusted(struct bpf_perf_event_data_kern *ctx
				  __attribute__((btf_decl_tag("arg:untrusted"))))
{
	snapshot.sample_flags = ctx->data->sample_flags;
	return 0;
}

SEC("perf_event")
int passes_untrusted(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	looks_at_untrusted((void *)ctx);
	return verdict;
}

/* Not static, so that another program can replace it. */
__noinline int can_be_replaced(struct bpf_perf_event_data *ctx)
{
	asm volatile("" ::"r"(ctx)); /* otherwise the compiler drops the argument */
	return verdict;
}

SEC("perf_event")
int calls_replaceable(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	return can_be_replaced(ctx);
}

SEC("freplace")
int replaces(struct bpf_perf_event_data *ctx)
{
	__sync_fetch_and_add(&runs, 1);
	read_sample(ctx);
	return verdict;
}

SEC("fentry")
int traces(__u64 *arguments)
{
	__sync_fetch_and_add(&runs, 1);
	read_sample((void *)arguments[0]);
	return 0;
}

SEC("perf_event")
int sends_signal(struct bpf_perf_event_data *ctx)
{
	(void)ctx;
	__sync_fetch_and_add(&runs, 1);
	bpf_send_signal(SIGUSR1);
	return verdict;
}

static __always_inline int on_trace(void)
{
	if (bpf_get_current_pid_tgid() >> 32 != tgid)
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

/* On the raw tracepoint sys_enter: counts only getppid(2), which the tests' tracing events hit. */
SEC("raw_tracepoint")
int on_raw_tracepoint(struct bpf_raw_tracepoint_args *ctx)
{
	if (ctx->args[1] != __NR_getppid)
		return 1;
	return on_trace();
}

char LICENSE[] SEC("license") = "GPL";
