// SPDX-License-Identifier: GPL-2.0
/*
 * C6: a program shares a map with a task that was preempted in bpf(2). Every hit in user mode, or
 * in an access of the kernel to user memory, must run the program, and its helpers must work as if
 * the map were not shared.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <numeric>
#include <thread>
#include <vector>

#include "bpf/shared.h"
#include "harness/race.h"
#include "lib/program.h"
#include "tests/common.h"

#include <shared.skel.h>

using Value = std::vector<char>;

/* The data of the task that calls bpf(2). */
struct Churn {
	int map;
	std::vector<uint32_t> keys;
	Value values;

	explicit Churn(const bpf_map *of)
		: map(bpf_map__fd(of))
		, keys(SHARED_KEYS)
		, values(SHARED_KEYS * SHARED_VALUE)
	{
		std::iota(keys.begin(), keys.end(), 0);
	}
};

/* Whether the map has the element depends on the hits, but the call must be valid. */
static void look_up(int map, const void *key, void *value)
{
	if (bpf_map_lookup_elem(map, key, value) &&
	    (errno == EBADF || errno == EINVAL || errno == EPERM))
		setup_failed("bpf() to look up an element", errno);
}

static void churn_hash(Churn &c)
{
	uint32_t batch, n = SHARED_KEYS;

	bpf_map_update_batch(c.map, c.keys.data(), c.values.data(), &n, nullptr);
	for (uint32_t key : { 0, 1 }) {
		bpf_map_update_elem(c.map, &key, c.values.data(), BPF_ANY);
		look_up(c.map, &key, c.values.data());
	}
	n = SHARED_KEYS;
	bpf_map_lookup_batch(c.map, nullptr, &batch, c.keys.data(), c.values.data(), &n, nullptr);
	std::iota(c.keys.begin(), c.keys.end(), 0);
	for (uint32_t key : c.keys)
		bpf_map_lookup_and_delete_elem(c.map, &key, c.values.data());
	n = SHARED_KEYS;
	bpf_map_delete_batch(c.map, c.keys.data(), &n, nullptr);
}

static void churn_trie(Churn &c)
{
	for (uint32_t address : c.keys) {
		uint32_t prefix[] = { 32, address };

		bpf_map_update_elem(c.map, prefix, c.values.data(), BPF_ANY);
		look_up(c.map, prefix, c.values.data());
	}
	for (uint32_t address : c.keys) {
		uint32_t prefix[] = { 32, address };

		bpf_map_delete_elem(c.map, prefix);
	}
}

static void churn_queue(Churn &c)
{
	bpf_map_update_elem(c.map, nullptr, c.values.data(), BPF_EXIST);
	look_up(c.map, nullptr, c.values.data());
	bpf_map_lookup_and_delete_elem(c.map, nullptr, c.values.data());
}

static void churn_stacks(Churn &c)
{
	for (uint32_t key : c.keys) {
		look_up(c.map, &key, c.values.data());
		bpf_map_delete_elem(c.map, &key);
	}
}

/* bpf(2) has no operation on a ring buffer, so use another map. */
static void churn_other_map(Churn &c)
{
	static const Fd other_map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(uint32_t),
						 4 * SHARED_VALUE, 1, nullptr));
	uint32_t key = 0;

	look_up(other_map.get(), &key, c.values.data());
}

/* The keys of task storage are pidfds. */
static void churn_tasks(Churn &c)
{
	static const Fd process(syscall(SYS_pidfd_open, getpid(), 0));
	int fd = process.get();

	bpf_map_update_elem(c.map, &fd, c.values.data(), BPF_ANY);
	look_up(c.map, &fd, c.values.data());
}

using Hits = uint64_t (*)(int in, int out);

static constexpr uint64_t BATCH = 10;
static volatile uint64_t watched;

/* The task writes the word, then the kernel writes it in read() from a pipe. */
static uint64_t write_watched(int in, int out)
{
	for (uint64_t i = 0; i < BATCH; i++) {
		char byte = 'x';

		watched = i;
		if (write(in, &byte, 1) != 1 || read(out, const_cast<uint64_t *>(&watched), 1) != 1)
			setup_failed("write to and read from a pipe", errno);
	}
	return (WATCHES_KERNEL ? 2 : 1) * BATCH;
}

/* The same with page faults, on untouched pages. */
static uint64_t fault(int in, int out)
{
	const size_t page = sysconf(_SC_PAGESIZE), size = 2 * BATCH * page;
	auto *pages = static_cast<char *>(
		mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));

	if (pages == MAP_FAILED)
		setup_failed("mmap", errno);
	for (uint64_t i = 0; i < 2 * BATCH; i += 2) {
		*static_cast<volatile char *>(pages + i * page) = 1;
		if (write(in, pages + i * page, 1) != 1 ||
		    read(out, pages + (i + 1) * page, 1) != 1)
			setup_failed("write to and read from a pipe", errno);
	}
	munmap(pages, size);
	return 2 * BATCH;
}

static perf_event_attr event_of(bool faults)
{
	perf_event_attr attr = breakpoint(Access::WRITE, &watched, sizeof(watched));

	if (faults) {
		attr.type = PERF_TYPE_SOFTWARE;
		attr.config = PERF_COUNT_SW_PAGE_FAULTS;
		attr.bp_type = 0;
		attr.bp_addr = attr.bp_len = 0;
	}
	attr.exclude_kernel = 0;
	return attr;
}

static const struct Shared {
	const char *name, *title;
	void (*churn)(Churn &churn);
	Hits hits;
	bool of_faults = false; /* the hits are page faults, not accesses to a watchpoint */
} shared_maps[] = {
	{ "hash", "a hash map", churn_hash, write_watched },
	{ "lru_hash", "an LRU hash map", churn_hash, write_watched },
	{ "lpm_trie", "an LPM trie", churn_trie, write_watched },
	{ "queue", "a queue", churn_queue, write_watched },
	{ "stack", "a stack", churn_queue, write_watched },
	{ "ringbuf", "a BPF ring buffer", churn_other_map, write_watched },
	{ "stack_map", "a map of stack traces", churn_stacks, write_watched },
	{ "build_ids", "a map of stack traces with build IDs", churn_stacks, fault, true },
	{ "task_storage", "task storage", churn_tasks, write_watched },
};

/* The program in_NAME and the map NAME of shared.bpf.c. */
class Sharing {
public:
	explicit Sharing(const std::string &name)
		: program_(("in_" + name).c_str(),
			   [&](shared &skel) {
				   bpf_map *map;

				   if (name == "task_storage")
					   need_task_storage();
				   bpf_object__for_each_map(map, skel.obj) bpf_map__set_autocreate(
					   map,
					   bpf_map__name(map) == name || bpf_map__is_internal(map));
			   })
		, map_(bpf_object__find_map_by_name(program_->obj, name.c_str()))
	{
	}
	Sharing(const Sharing &) = delete;

	const bpf_map *map() const { return map_; }
	int prog_fd() const { return program_.prog_fd(); }
	const volatile auto *globals() const { return program_.globals(); }
	/* Creates the elements that the program looks up. */
	void prepare() const
	{
		uint32_t prefix[] = { 32, SHARED_KEYS };
		Value value(SHARED_VALUE);
		Fd process(syscall(SYS_pidfd_open, getpid(), 0));
		int fd = process.get();

		if ((map_ == program_->maps.lpm_trie &&
		     bpf_map_update_elem(bpf_map__fd(map_), prefix, value.data(), BPF_ANY)) ||
		    (map_ == program_->maps.task_storage &&
		     bpf_map_update_elem(bpf_map__fd(map_), &fd, value.data(), BPF_ANY)))
			setup_failed("bpf() to fill the map", errno);
		if (map_ == program_->maps.ringbuf) {
			reader_ = ring_buffer__new(
				bpf_map__fd(map_), [](void *, void *, size_t) { return 0; },
				nullptr, nullptr);
			if (!reader_)
				setup_failed("ring_buffer__new", errno);
		}
	}
	void empty() const
	{
		if (reader_)
			ring_buffer__consume(reader_);
	}

private:
	static void need_task_storage()
	{
		if (access("/sys/kernel/btf/vmlinux", F_OK))
			unavailable("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)");
		if (!libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_task_storage_get,
					     nullptr))
			unavailable("the kernel has no task storage (it came with 5.12)");
	}

	Loaded<shared> program_;
	bpf_map *map_;
	mutable ring_buffer *reader_ = nullptr;
};

/* The CPU time that a thread has used, in nanoseconds. */
static uint64_t cpu_time_of(std::thread &thread)
{
	clockid_t clock;
	timespec used;

	if (pthread_getcpuclockid(thread.native_handle(), &clock) || clock_gettime(clock, &used))
		setup_failed("the CPU time of a thread", errno);
	return used.tv_sec * 1'000'000'000ull + used.tv_nsec;
}

static void check_shared(const Shared &shared)
{
	constexpr uint64_t ENOUGH = 100'000, LEAST = 20;
	constexpr double SECONDS = 9;
	const int cpu = usable_cpus().front();
	Sharing program(shared.name);
	std::atomic<bool> stop = false;
	std::atomic<uint64_t> rounds = 0;
	uint64_t hits = 0, counted = 0, preemptions = 0, used = 0;
	std::optional<Bound> bound;
	Pipe pipe;

	program.prepare();
	run_on(cpu);

	std::thread in_bpf([&] {
		Churn churn(program.map());

		while (!stop) {
			shared.churn(churn);
			rounds++;
		}
	});

	while (!rounds)
		sched_yield();
	/* Preempt the task in bpf() as soon as the timer fires. */
	become_realtime(1);
	{
		Event event(event_of(shared.of_faults));
		Ring ring(event);

		event.enable(program);
		bound.emplace(SECONDS, ENOUGH, LEAST);
		while (program.globals()->runs >= counted && !bound->reached(hits, preemptions)) {
			usleep(50 + hits % 201);
			/* The task is nearly always in bpf(). It was preempted if it ran. */
			if (const uint64_t now = cpu_time_of(in_bpf); now != used) {
				preemptions++;
				used = now;
			}
			hits += shared.hits(pipe.in.get(), pipe.out.get());
			counted = event.count();
			program.empty();
			ring.forget();
			ring.drain();
		}
		event.disable();
		counted = event.count();
	}
	stop = true;
	in_bpf.join();

	uint64_t runs = program.globals()->runs, wrong = program.globals()->wrong;

	note("%lu of %lu hits lost, %lu rounds of bpf(), preempted %lu times", counted - runs,
	     counted, rounds.load(), preemptions);
	if (wrong)
		note("%lu times a helper failed, the last time with %ld", wrong,
		     long(program.globals()->last_error));
	EXPECT_GE(counted, hits, "hits counted");
	bound->met(preemptions, "times that the task in bpf() was preempted", runs != counted);
	EXPECT_EQ(runs, counted, "runs of the program");
	EXPECT_EQ(wrong, 0, "runs whose helpers failed");
}

static const bool added = [] {
	for (const Shared &shared : shared_maps)
		add_test({ std::string("races.shared_map.") + shared.name, "C6",
			   std::string("a program that uses ") + shared.title +
				   " runs on every hit, even if the hit preempts a task in bpf()",
			   [&shared] { check_shared(shared); } });
	return true;
}();
