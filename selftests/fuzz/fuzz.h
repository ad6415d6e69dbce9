/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the parts of perf_bpf_fuzz. */
#pragma once

#include <linux/perf_event.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/filter.h"
#include "lib/pmu.h"
#include "lib/random.h"

/* --- shared by all episodes, and prepared by the parent --- */

constexpr size_t MOST_KINDS = 80, ERRNOS = 530;

struct Counts {
	std::atomic<uint64_t> tried[MOST_KINDS], errors[MOST_KINDS][ERRNOS]; /* [0]: succeeded */
	std::atomic<uint64_t> calls, hits, signals;
};

extern Counts *counts;

/* Programs that exist during the whole run: of the type for overflows, and of other types. */
extern std::vector<int> right_progs, wrong_progs;
extern std::vector<std::unique_ptr<Filter>> filters;
extern uint64_t tracepoint_id;
/* Addresses of kernel functions in the overflow path, and of data that is written often. */
extern std::vector<uint64_t> kernel_text, kernel_data;

/* --- shared by the threads of an episode --- */

constexpr int CALLS_EACH = 250; /* by each of the two threads */

/*
 * Slots for descriptors of one kind. Threads exchange the content of a slot atomically, so that
 * only one thread closes each descriptor, although other threads may be in a call with it.
 */
class Pool {
public:
	static constexpr int SLOTS = 10;

	void put(Random &random, int fd)
	{
		int old = slots_[random.below(SLOTS)].exchange(fd);

		if (old >= 0)
			close(old);
	}
	/* Returns a descriptor that is open in most cases. */
	int any(Random &random) const
	{
		int fd = -1;

		for (int i = 0; i < SLOTS && fd < 0; i++)
			fd = slots_[random.below(SLOTS)];
		return fd;
	}
	int take(Random &random) { return slots_[random.below(SLOTS)].exchange(-1); }
	void close_all()
	{
		for (auto &slot : slots_)
			if (int fd = slot.exchange(-1); fd >= 0)
				close(fd);
	}
	Pool()
	{
		for (auto &slot : slots_)
			slot = -1;
	}

private:
	std::atomic<int> slots_[SLOTS];
};

extern Pool breakpoints, others, links, progs;

constexpr size_t PAGE = 4096;

struct Mapping {
	char *at;
	size_t size;
	bool writable;
};

/*
 * The attributes of each descriptor, for MODIFY_ATTRIBUTES, which requires most of them unchanged.
 * If threads race with each other here, the result is bad input, which is fine.
 */
extern perf_event_attr opened[256];

extern std::atomic<Mapping *> mappings[4];
extern std::atomic<pid_t> children[3];
extern std::atomic<pid_t> threads[2];
/*
 * Kernels since 6.1 deadlock if PR_TASK_PERF_EVENTS_* races with MODIFY_ATTRIBUTES: the former
 * takes perf_event_mutex and then ctx->mutex, the latter takes them in the reverse order, by
 * bp_constraints_lock(). So an episode uses only one of the two.
 */
extern bool has_prctl;

extern int mail[2]; /* a socket pair for sending descriptors */
extern volatile uint64_t watched[4];
extern uint32_t pmu; /* attr.type of the PMU of module/, or 0 */
extern std::vector<Hits> overflows; /* hits of the PMU's counters in each context */

/* --- one thread, or one child, of an episode --- */

struct Worker {
	Random random;
	int depth; /* of forks */

	void run(int calls);
	void hits();

	Pool &events() { return random.one_in(3) ? others : breakpoints; }
	/* The descriptor of an event, sometimes of another object, or an invalid one. */
	int event()
	{
		if (random.one_in(40))
			return random.of({ -1, 0, mail[0], links.any(random), progs.any(random),
					   99999, INT_MIN });
		return events().any(random);
	}
	int prog()
	{
		if (random.one_in(12))
			return random.one_in(2) ? random.of(wrong_progs) : event();
		if (random.one_in(2))
			if (int fd = progs.any(random); fd >= 0)
				return fd;
		return random.of(right_progs);
	}
	pid_t target()
	{
		return random.of({ 0, 0, 0, 0, threads[0].load(), threads[1].load(),
				   children[0].load(), children[1].load() });
	}
	/* Signals must not reach processes outside of this episode. */
	pid_t owner()
	{
		return random.of({ getpid(), gettid(), threads[1].load(), -getpgrp(), 0,
				   children[0].load(), 4'194'303 });
	}
	uint64_t odd_number()
	{
		return random.of<uint64_t>({ 0, 1, 2, 3, 4095, 4096, 1ull << 31, 1ull << 32,
					     1ull << 62, 1ull << 63, UINT64_MAX, random.next() });
	}
};

/* The result of a call, or its errno as a negative number. */
inline long outcome(long returned)
{
	return returned < 0 ? -errno : returned;
}

/* The call was not made, because an object that it needs was missing. */
constexpr long NOTHING = LONG_MIN;

struct Kind {
	const char *name;
	unsigned weight;
	long (*call)(Worker &w); /* an outcome */
	uint32_t flags = 0; /* NEVER: it cannot succeed. LINKS: it requires links (5.15) */
};

enum : uint32_t { NEVER = 1, LINKS = 2 };

/* The calls by subject, and all of them. */
std::span<const Kind> calls_on_events();
std::span<const Kind> calls_on_programs();
std::span<const Kind> calls_on_rings();
std::span<const Kind> calls_on_tasks();
const std::vector<Kind> &kinds();

[[noreturn]] void episode(uint64_t seed);

/* Attributes of an event that can be opened in most cases. */
perf_event_attr attributes(Worker &w, bool of_breakpoints);
perf_event_attr of_breakpoint(Random &random);
void spoil(perf_event_attr &attr, Worker &w);
/* A period in nanoseconds for the clock events. */
uint64_t clock_period(Random &random);

/* The number of kernel objects of each kind that the calls create. It must not grow. */
std::map<std::string, uint64_t> census();
/* Prints what has leaked since the census() @before. Returns the number of leaking kinds. */
int report_leaks(const std::map<std::string, uint64_t> &before);
int report_kmemleak();
/* The number of breakpoints that this thread can open, which shows leaked debug registers. */
int free_registers();
