// SPDX-License-Identifier: GPL-2.0
/*
 * A safepoint without mprotect(): a runtime with garbage collection stops its threads where their
 * state is consistent. The threads poll by reading a word, which costs a load. Stopping them
 * changes no page table, and can be limited to one thread: the kernel rejects the hits of all
 * others, which keep polling.
 *
 * Recipe: before the threads are created, open a disabled watchpoint on the word with attr.inherit
 * and sigtrap. To stop threads, set in the program's globals which ones, and enable the watchpoint.
 * A thread that polls gets SIGTRAP, and its handler waits. Because the signal is synchronous, the
 * handler may do everything that code at a poll may do: take locks, allocate memory, walk the
 * stack.
 */
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "uses/uses.h"

static constexpr int THREADS = 4;

alignas(64) static volatile uint64_t polled; /* alone in its cache line: only ever read */

alignas(64) static std::atomic<uint32_t> stopped, round_number;
static std::atomic<uint32_t> stop_only; /* as in the program's globals: 0 means all threads */
static pid_t collector;

static thread_local volatile uint64_t traps, strays;

static void on_poll(int, siginfo_t *, void *)
{
	/* If the kernel ignores the program, do not stop the collector or another wrong thread. */
	if (gettid() == collector || (stop_only && stop_only != static_cast<uint32_t>(gettid()))) {
		strays = strays + 1;
		return;
	}

	const uint32_t now = round_number;

	traps = traps + 1;
	stopped++;
	stopped.notify_all();
	round_number.wait(now);
}

/* A thread moves units between two counters, whose sum is UNITS only at a poll. */
struct alignas(64) Mutator {
	std::atomic<pid_t> tid;
	std::atomic<uint64_t> polls;
	volatile uint64_t left, right;
	uint64_t traps, strays;
};

static constexpr uint64_t UNITS = 1000;

static void mutate(Mutator &me, const std::atomic<bool> &done, std::latch &started)
{
	me.left = UNITS;
	me.right = 0;
	me.tid = gettid();
	started.count_down();
	while (!done) {
		me.left = (me.left + UNITS - 1) % UNITS;
		me.right = UNITS - me.left;
		(void)polled;
		me.polls.fetch_add(1, std::memory_order_relaxed);
		std::this_thread::yield(); /* there may be fewer CPUs than threads */
	}
	me.traps = traps;
	me.strays = strays;
}

class Runtime {
public:
	Runtime()
	{
		collector = gettid();
		uses.globals()->safepoint_except = collector;
		event.must_attach(uses);
		for (Mutator &mutator : mutators)
			threads.emplace_back([&] { mutate(mutator, done, started); });
		started.wait();
	}

	/* Stops one thread, or all if @only is 0, and waits until they have stopped at a poll. */
	void stop(pid_t only)
	{
		const uint32_t wanted = only ? 1 : THREADS;

		stopped = 0;
		stop_only = only;
		uses.globals()->safepoint_only = only;
		event.enable();
		for (uint32_t n; (n = stopped) < wanted;)
			stopped.wait(n);
	}

	/* Disables the watchpoint before the threads continue, so that none stops again. */
	void resume()
	{
		event.disable();
		round_number++;
		round_number.notify_all();
	}

	/* Ends the threads. Each must have trapped @times times, and the collector never. */
	void end(uint64_t times)
	{
		uint64_t wrong = 0, stray = strays;

		done = true;
		for (auto &thread : threads)
			thread.join();
		for (Mutator &mutator : mutators) {
			wrong += mutator.traps != times;
			stray += mutator.strays;
		}
		EXPECT_EQ(wrong, 0, "threads with a wrong number of SIGTRAPs");
		EXPECT_EQ(stray, 0, "SIGTRAPs in threads that must not stop");
		EXPECT_EQ(event.count(), uses.globals()->safepoint_polls,
			  "hits counted, as many as runs of the program");
	}

	std::vector<Mutator> mutators{ THREADS };

private:
	Uses uses{ "safepoint" };
	Handler handler{ SIGTRAP, on_poll };
	/* x86 has no watchpoint on reads alone. */
	Event event = event_in_all_threads(breakpoint(Access::READ_WRITE, &polled, sizeof(polled)));
	std::atomic<bool> done = false;
	std::latch started{ THREADS };
	std::vector<std::thread> threads;
};

TEST("uses.safepoint", "C1", "all threads stop at a poll, and the collector polls without stopping")
{
	constexpr uint64_t ROUNDS = 10;
	Runtime runtime;
	uint64_t inconsistent = 0;

	for (uint64_t i = 0; i < ROUNDS; i++) {
		runtime.stop(0);
		(void)polled;
		for (Mutator &mutator : runtime.mutators)
			inconsistent += mutator.left + mutator.right != UNITS;
		runtime.resume();
	}
	EXPECT_EQ(inconsistent, 0, "threads stopped outside of a poll");
	runtime.end(ROUNDS);
}

TEST("uses.safepoint.one", "C1", "one thread stops at a poll while all the others keep polling")
{
	constexpr uint64_t POLLS = 50;
	Runtime runtime;
	uint64_t moved = 0;

	for (Mutator &one : runtime.mutators) {
		runtime.stop(one.tid);

		/* While one thread is stopped at its poll, all others make progress. */
		const uint64_t polls = one.polls;
		std::vector<uint64_t> enough;

		for (Mutator &other : runtime.mutators)
			enough.push_back(other.polls + (&other == &one ? 0 : POLLS));
		for (int i = 0; i < THREADS; i++)
			while (runtime.mutators[i].polls < enough[i])
				std::this_thread::yield();
		moved += one.polls != polls || one.left + one.right != UNITS;
		runtime.resume();
	}
	EXPECT_EQ(moved, 0, "threads that continued while they were stopped");
	runtime.end(1);
}
