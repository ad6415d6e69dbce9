/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of perf_bpf_fuzz share. */
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

/* --- what all episodes share, and what the parent prepares for them --- */

constexpr size_t MOST_KINDS = 80, ERRNOS = 530;

struct Counts {
	std::atomic<uint64_t> tried[MOST_KINDS], errors[MOST_KINDS][ERRNOS]; /* [0]: succeeded */
	std::atomic<uint64_t> calls, hits, signals;
};

extern Counts *counts;

/* The programs that are there all the time: of the right type, and of others. */
extern std::vector<int> right_progs, wrong_progs;
extern std::vector<std::unique_ptr<Filter>> filters;
extern uint64_t tracepoint_id;
/* In the overflow path, and what is written or called by others all the time. */
extern std::vector<uint64_t> kernel_text, kernel_data;

/* --- what the threads of an episode share --- */

constexpr int CALLS_EACH = 250; /* of a thread */

/*
 * Descriptors, each kind in slots of its own. Threads exchange what is in a slot, so that each
 * descriptor is closed by one of them alone, though the others may be in a call with it.
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
	/* Mostly one that is open. */
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
 * The attributes of each descriptor, for MODIFY_ATTRIBUTES, which wants most of them unchanged.
 * Torn by threads, they are bad input.
 */
extern perf_event_attr opened[256];

extern std::atomic<Mapping *> mappings[4];
extern std::atomic<pid_t> children[3];
extern std::atomic<pid_t> threads[2];
/*
 * Since 6.1 a kernel stops for ever where PR_TASK_PERF_EVENTS_* meets MODIFY_ATTRIBUTES: one takes
 * perf_event_mutex and then ctx->mutex, the other the reverse, by bp_constraints_lock(). So an
 * episode has only one of the two.
 */
extern bool has_prctl;

extern int mail[2]; /* a socket pair, to send descriptors through */
extern volatile uint64_t watched[4];
extern uint32_t pmu; /* attr.type of that of module/, if there is one */
extern std::vector<Hits> overflows; /* of its counters, from each context */

/* --- one thread, or one child, of an episode --- */

struct Worker {
	Random random;
	int depth; /* of forks */

	void run(int calls);
	void hits();

	Pool &events() { return random.one_in(3) ? others : breakpoints; }
	/* Of an event, but now and then of something else, or of nothing. */
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
	/* Whoever gets a signal is of this episode, or nobody. */
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

/* What a call has come to: its result, or the errno as a negative number. */
inline long outcome(long returned)
{
	return returned < 0 ? -errno : returned;
}

/* A call that there was nothing to make with. */
constexpr long NOTHING = LONG_MIN;

struct Kind {
	const char *name;
	unsigned weight;
	long (*call)(Worker &w); /* an outcome */
	uint32_t flags = 0; /* NEVER: none succeeds. LINKS: it takes links, which came with 5.15 */
};

enum : uint32_t { NEVER = 1, LINKS = 2 };

/* The calls, by what they are about; and all of them. */
std::span<const Kind> calls_on_events();
std::span<const Kind> calls_on_programs();
std::span<const Kind> calls_on_rings();
std::span<const Kind> calls_on_tasks();
const std::vector<Kind> &kinds();

[[noreturn]] void episode(uint64_t seed);

/* Of an event that may be opened, or now and then not. */
perf_event_attr attributes(Worker &w, bool of_breakpoints);
perf_event_attr of_breakpoint(Random &random);
void spoil(perf_event_attr &attr, Worker &w);
/* Nanoseconds, for the kernel's clocks. */
uint64_t clock_period(Random &random);

/* What the kernel has of what the calls make: in the end there must be no more than before. */
std::map<std::string, uint64_t> census();
/* Prints what there is too much of, compared with a census() before; how many kinds of it. */
int report_leaks(const std::map<std::string, uint64_t> &before);
int report_kmemleak();
/* How many breakpoints this thread can have: registers that were not given back are missed. */
int free_registers();
