// SPDX-License-Identifier: GPL-2.0
/*
 * Each of these programs uses a map on which a task calls bpf(2). It may have interrupted that task
 * in the system call. Its helpers must work as if the map were not shared.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include <bpf/bpf_helpers.h>
#include "shared.h"

__u64 runs;
__u64 wrong; /* runs in which a helper failed */
long last_error; /* return value of the helper in the last of these runs */

struct shared_value own; /* the program's value, with the number of the run */

struct prefix {
	__u32 bits;
	__u32 address;
};

#define MAP(name, map_type, key_type, value_type, entries, flags)                                  \
	struct {                                                                                   \
		__uint(type, map_type);                                                            \
		__type(key, key_type);                                                             \
		__type(value, value_type);                                                         \
		__uint(max_entries, entries);                                                      \
		__uint(map_flags, flags);                                                          \
	} name SEC(".maps")

MAP(hash, BPF_MAP_TYPE_HASH, __u32, struct shared_value, 2 * SHARED_KEYS, 0);
MAP(lru_hash, BPF_MAP_TYPE_LRU_HASH, __u32, struct shared_value, 16 * SHARED_KEYS, 0);
MAP(lpm_trie, BPF_MAP_TYPE_LPM_TRIE, struct prefix, struct shared_value, 2 * SHARED_KEYS,
    BPF_F_NO_PREALLOC);

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__type(value, struct shared_value);
	__uint(max_entries, SHARED_KEYS);
} queue SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__type(value, struct shared_value);
	__uint(max_entries, SHARED_KEYS);
} stack SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * SHARED_VALUE);
} ringbuf SEC(".maps");

MAP(stack_map, BPF_MAP_TYPE_STACK_TRACE, __u32, __u64[SHARED_FRAMES], SHARED_KEYS, 0);
MAP(build_ids, BPF_MAP_TYPE_STACK_TRACE, __u32, struct bpf_stack_build_id[SHARED_FRAMES],
    SHARED_KEYS, BPF_F_STACK_BUILD_ID);

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct shared_storage);
} task_storage SEC(".maps");

/* All programs accept: a hit whose program does not run is not delivered. */
static __always_inline int done(int ok, long last)
{
	if (!ok) {
		wrong++;
		last_error = last;
	}
	return 1;
}

static __always_inline int keeps(void *map)
{
	__u32 key = SHARED_KEYS;
	struct shared_value *found;
	long err;

	own.number = ++runs;
	err = bpf_map_update_elem(map, &key, &own, BPF_ANY);
	found = bpf_map_lookup_elem(map, &key);
	return done(!err && found && found->number == runs, err);
}

SEC("perf_event")
int in_hash(void *ctx)
{
	(void)ctx;
	return keeps(&hash);
}

SEC("perf_event")
int in_lru_hash(void *ctx)
{
	(void)ctx;
	return keeps(&lru_hash);
}

/* Only a lookup: an update would have to allocate memory, maybe in an NMI. */
SEC("perf_event")
int in_lpm_trie(void *ctx)
{
	struct prefix prefix = { 32, SHARED_KEYS };

	(void)ctx;
	runs++;
	return done(!!bpf_map_lookup_elem(&lpm_trie, &prefix), 0);
}

static __always_inline int pushes(void *map)
{
	long err;

	own.number = ++runs;
	err = bpf_map_push_elem(map, &own, BPF_EXIST);
	return done(!err, err);
}

SEC("perf_event")
int in_queue(void *ctx)
{
	(void)ctx;
	return pushes(&queue);
}

SEC("perf_event")
int in_stack(void *ctx)
{
	(void)ctx;
	return pushes(&stack);
}

SEC("perf_event")
int in_ringbuf(void *ctx)
{
	long err;

	(void)ctx;
	runs++;
	err = bpf_ringbuf_output(&ringbuf, &runs, sizeof(runs), BPF_RB_NO_WAKEUP);
	return done(!err, err);
}

SEC("perf_event")
int in_stack_map(void *ctx)
{
	long id = bpf_get_stackid(ctx, &stack_map, BPF_F_USER_STACK | BPF_F_REUSE_STACKID);

	runs++;
	return done(id >= 0, id);
}

SEC("perf_event")
int in_build_ids(void *ctx)
{
	struct bpf_stack_build_id frame = {};
	long id = bpf_get_stackid(ctx, &build_ids, BPF_F_USER_STACK | BPF_F_REUSE_STACKID);
	long bytes =
		bpf_get_stack(ctx, &frame, sizeof(frame), BPF_F_USER_STACK | BPF_F_USER_BUILD_ID);

	runs++;
	return done(id >= 0 && bytes == sizeof(frame) && frame.status != BPF_STACK_BUILD_ID_EMPTY,
		    id < 0 ? id : bytes);
}

struct task_struct;

SEC("perf_event")
int in_task_storage(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();

	(void)ctx;
	runs++;
	return done(!!bpf_task_storage_get(&task_storage, task, 0, 0), 0);
}

char LICENSE[] SEC("license") = "GPL";
