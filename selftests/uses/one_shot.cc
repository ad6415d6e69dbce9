// SPDX-License-Identifier: GPL-2.0
/*
 * A sampling profiler in the process that it profiles, such as async-profiler: which calls of
 * malloc() does each thread make? Each thread has a breakpoint that is armed for one hit, so that
 * calls in the signal handler do not hit. The handler records the stack and arms the breakpoint for
 * the next hit. With a program, only large allocations cost a signal; event->count says how many
 * calls were made since the last one.
 *
 * Recipe: for each thread, open a breakpoint with sample_period 1, O_ASYNC, F_SETSIG to SIGPROF and
 * F_SETOWN_EX to the thread, and arm it with PERF_EVENT_IOC_REFRESH(1). The handler reads the count
 * of siginfo's si_fd, then does PERF_EVENT_IOC_RESET and PERF_EVENT_IOC_REFRESH(1). From 6.17 on, a
 * kernel without the series ignores all hits but the first, unless a PERF_EVENT_IOC_PERIOD follows.
 */
#include <sys/ioctl.h>

#include <barrier>
#include <deque>
#include <thread>
#include <vector>

#include "lib/hit.h"
#include "lib/ring.h"
#include "uses/uses.h"

static constexpr uint64_t THREADS = 8, EVERY = 4, SMALL = 16, LARGE = 4096;

/* The signals that the handler has seen in one thread. */
struct Seen {
	int fd; /* of the thread's event */
	uint64_t signals, calls; /* and the calls that these signals stand for */
	uint64_t misdirected; /* signals for another thread's event */
	uint64_t signal_mismatches; /* calls with a missing or unexpected signal */
};

static thread_local Seen seen;

static void on_sample(int, siginfo_t *info, void *)
{
	uint64_t calls = 0;

	seen.misdirected += info->si_code <= 0 || info->si_fd != seen.fd;
	if (read(info->si_fd, &calls, sizeof(calls)) == sizeof(calls))
		seen.calls += calls;
	ioctl(info->si_fd, PERF_EVENT_IOC_RESET, 0);
	/* A stock arm64 kernel repeats the hit whenever the handler arms the breakpoint. */
	if (++seen.signals < 2 * HITS)
		ioctl(info->si_fd, PERF_EVENT_IOC_REFRESH, 1);
}

/* Makes HITS calls, of which every EVERYth is large. */
static void call(bool only_large)
{
	for (uint64_t i = 1; i <= HITS; i++) {
		const bool large = i % EVERY == 0;
		const uint64_t before = seen.signals;

		hit(large ? LARGE : SMALL);
		seen.signal_mismatches += seen.signals - before != (large || !only_large);
	}
}

/* Samples THREADS threads that make calls concurrently. With @uses, only large calls signal. */
static void sample(const Uses *uses)
{
	const uint64_t wanted = uses ? HITS / EVERY : HITS;
	Handler handler(SIGPROF, on_sample);
	std::deque<Event> events;
	std::deque<Ring> rings;
	std::vector<std::thread> threads;
	std::vector<pid_t> tids(THREADS);
	std::vector<Seen> of_thread(THREADS);
	std::barrier started(THREADS + 1), armed(THREADS + 1);
	uint64_t wrong_threads = 0, calls = 0, samples = 0, misdirected = 0, signal_mismatches = 0;

	for (uint64_t i = 0; i < THREADS; i++)
		threads.emplace_back([&, i] {
			tids[i] = gettid();
			started.arrive_and_wait();
			armed.arrive_and_wait();
			seen.fd = events[i].fd();
			call(uses);
			of_thread[i] = seen;
		});
	started.arrive_and_wait();
	for (pid_t tid : tids) {
		Event &event = events.emplace_back(breakpoint(hit), tid);

		rings.emplace_back(event);
		event.async(SIGPROF, tid);
		if (uses)
			event.must_attach(*uses);
		event.must_refresh(1);
	}
	armed.arrive_and_wait();
	for (auto &thread : threads)
		thread.join();

	for (uint64_t i = 0; i < THREADS; i++) {
		const Seen &its = of_thread[i];

		rings[i].drain();
		wrong_threads += its.signals != wanted;
		calls += its.calls + events[i].count();
		samples += rings[i].samples();
		misdirected += its.misdirected;
		signal_mismatches += its.signal_mismatches;
	}
	EXPECT_EQ(wrong_threads, 0, "threads without exactly one signal per accepted hit");
	EXPECT_EQ(signal_mismatches, 0, "calls with a missing or unexpected signal");
	EXPECT_EQ(misdirected, 0, "signals for another thread's event");
	EXPECT_EQ(samples, THREADS * wanted, "samples");
	EXPECT_EQ(calls, THREADS * HITS, "hits counted");
}

TEST("uses.one_shot", "C10", "a thread that re-arms its breakpoint at each signal sees every hit")
{
	sample(nullptr);
}

TEST("uses.one_shot.filtered", "C1",
     "rejected hits do not disarm a breakpoint that is armed for one hit")
{
	Uses uses("one_shot");

	uses.globals()->one_shot_least = LARGE;
	sample(&uses);
}
