// SPDX-License-Identifier: GPL-2.0
/*
 * A safepoint without mprotect: a runtime stops its threads where their state is consistent, for
 * a collection. They poll by reading one word. Polling costs a load; a stop costs no page and no
 * change of the page tables, and it can be for one thread alone while all the others poll on:
 * the kernel turns their hits away.
 *
 * Recipe: before the threads are created, a watchpoint on the word with attr.inherit and sigtrap,
 * disabled. To stop them: say in the program's globals whom, and enable it. Who polls gets
 * SIGTRAP; its handler waits. As the signal is synchronous, the handler may do whatever the code
 * at a poll may do: take locks, allocate, walk the stack.
 */
#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "uses/uses.h"

static constexpr int THREADS = 4;

alignas(64) static volatile uint64_t polled; /* alone in its cache line: only ever read */

alignas(64) static std::atomic<uint32_t> stopped, round_number;
static std::atomic<uint32_t> stop_only; /* as the program has it: 0 is all */
static pid_t collector;

static thread_local volatile uint64_t traps, strays;

static void on_poll(int, siginfo_t *, void *)
{
	/* A kernel that ignores the program's word must not stop the collector, or a bystander. */
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

/* A thread moves units between two pockets: at a poll, and only there, they add up. */
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

	/* Stops one thread, or all if @only is 0. When it returns they are at a poll. */
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

	/* First nobody traps any more, then they go. */
	void go()
	{
		event.disable();
		round_number++;
		round_number.notify_all();
	}

	/* Ends the threads; each has trapped @times, and nothing else has. */
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
		EXPECT_EQ(wrong, 0,
			  "threads that trapped more or less often than they were stopped");
		EXPECT_EQ(stray, 0, "SIGTRAPs in a thread that was not to stop");
		EXPECT_EQ(event.count(), uses.globals()->safepoint_polls,
			  "polls, and program runs");
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
		runtime.go();
	}
	EXPECT_EQ(inconsistent, 0, "threads stopped elsewhere than at a poll");
	runtime.end(ROUNDS);
}

TEST("uses.safepoint.one", "C1", "one thread stops at a poll while all the others keep polling")
{
	constexpr uint64_t POLLS = 50;
	Runtime runtime;
	uint64_t moved = 0;

	for (Mutator &one : runtime.mutators) {
		runtime.stop(one.tid);

		/* While one stands still, at its poll, all the others get on. */
		const uint64_t polls = one.polls;
		std::vector<uint64_t> enough;

		for (Mutator &other : runtime.mutators)
			enough.push_back(other.polls + (&other == &one ? 0 : POLLS));
		for (int i = 0; i < THREADS; i++)
			while (runtime.mutators[i].polls < enough[i])
				std::this_thread::yield();
		moved += one.polls != polls || one.left + one.right != UNITS;
		runtime.go();
	}
	EXPECT_EQ(moved, 0, "threads that went on although stopped");
	runtime.end(1);
}
