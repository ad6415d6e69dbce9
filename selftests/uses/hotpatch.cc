// SPDX-License-Identifier: GPL-2.0
/*
 * Hot patching without stopping all threads: replace a routine and the layout of its data while
 * threads call it. Only threads that enter the routine during the change wait; all other threads
 * keep running. Calls that the change does not affect do not even get a signal: the kernel rejects
 * their hits. No code is modified, so text may be read-only and instruction caches need no flush.
 *
 * Recipe: before the threads are created, open a disabled execute breakpoint on the routine with
 * attr.inherit and sigtrap. To patch: enable it; ask each thread by a signal whether it is inside
 * the old routine, until none is; convert the data; publish the new routine. The SIGTRAP handler
 * waits for that and sets the program counter to the new routine. The breakpoint stays: it is the
 * patch.
 */
#include <sys/syscall.h>
#include <sys/ucontext.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "lib/hit.h"
#include "uses/uses.h"

static constexpr int THREADS = 4;
static constexpr uint64_t CALLS = 50; /* of each thread after the change, at least */

using Routine = int(uint64_t amount);

/* The old routine and its data. It calls no function, so the pc of a thread inside is in it. */
static std::atomic<uint64_t> old_sum;

[[gnu::section("hotpatch_old")]] NOINLINE_NOCLONE static int add(uint64_t amount)
{
	int result = 1;

	old_sum.fetch_add(amount, std::memory_order_relaxed);
	asm("" : "+r"(result)); /* hides the result from callers: the new routine's differs */
	return result;
}

extern const char __start_hotpatch_old[], __stop_hotpatch_old[]; /* from the linker */

/* The new routine and its data. */
static std::atomic<uint64_t> new_sum, new_calls;

NOINLINE_NOCLONE static int add_and_count(uint64_t amount)
{
	new_sum.fetch_add(amount, std::memory_order_relaxed);
	new_calls.fetch_add(1, std::memory_order_relaxed);
	return 2;
}

static std::atomic<Routine *> published;

static thread_local volatile uint64_t traps;

/* At the entry of the old routine, before its first instruction: wait, and enter the new one. */
static void on_entry(int, siginfo_t *, void *context)
{
	traps = traps + 1;
	published.wait(nullptr);
	pc_of(*static_cast<ucontext_t *>(context)) = reinterpret_cast<uintptr_t>(published.load());
}

/* Whether a thread is inside the old routine: UNKNOWN until it has answered the signal. */
enum Answer { UNKNOWN, INSIDE, OUTSIDE };
static thread_local std::atomic<int> *answer;

static void on_inside_query(int, siginfo_t *, void *context)
{
	uintptr_t pc = pc_of(*static_cast<ucontext_t *>(context));

	*answer = pc >= reinterpret_cast<uintptr_t>(__start_hotpatch_old) &&
				  pc < reinterpret_cast<uintptr_t>(__stop_hotpatch_old)
			  ? INSIDE
			  : OUTSIDE;
	answer->notify_one();
}

struct Worker {
	std::atomic<int> answer, tid;
	std::atomic<uint64_t> patched; /* calls that the new routine served */
	uint64_t sum, traps; /* the amounts of all calls, and the number of SIGTRAPs */
	uint64_t wrong_calls; /* calls with a wrong SIGTRAP or a wrong result */
};

static void work(Worker &me, const std::atomic<bool> &done, std::latch &started)
{
	answer = &me.answer;
	me.tid = gettid();
	started.count_down();
	for (uint64_t i = 0; !done; i++) {
		const uint64_t amount = i % 4, before = traps;
		const bool by_new = add(amount) == 2;

		me.sum += amount;
		/*
		 * A call must trap if and only if the new routine ran: never if the amount is 0,
		 * always after the change.
		 */
		me.wrong_calls += traps - before != by_new || (by_new && !amount) ||
				  (!by_new && amount && me.patched);
		if (by_new)
			me.patched++;
	}
	me.traps = traps;
}

TEST("uses.hotpatch", "C1",
     "a routine is replaced while threads call it; calls that the change does not affect are "
     "not stopped")
{
	Uses uses("hotpatch");
	Handler entry(SIGTRAP, on_entry), query(SIGUSR1, on_inside_query);
	Event event = event_in_all_threads(breakpoint(add));
	std::vector<Worker> workers(THREADS);
	std::vector<std::thread> threads;
	std::atomic<bool> done = false;
	std::latch started(THREADS);
	uint64_t sum = 0, patched = 0, traps = 0, wrong_calls = 0;

	event.must_attach(uses);
	for (Worker &worker : workers)
		threads.emplace_back([&] { work(worker, done, started); });
	started.wait();

	event.enable();
	for (Worker &worker : workers) {
		do {
			worker.answer = UNKNOWN;
			syscall(SYS_tgkill, getpid(), worker.tid.load(), SIGUSR1);
			worker.answer.wait(UNKNOWN);
		} while (worker.answer == INSIDE);
	}
	/* No thread adds to the old sum from here on, although threads still call the routine. */
	new_sum = old_sum.exchange(0);
	published = add_and_count;
	published.notify_all();

	for (Worker &worker : workers)
		while (worker.patched < CALLS)
			std::this_thread::yield();
	done = true;
	for (auto &thread : threads)
		thread.join();

	for (Worker &worker : workers) {
		sum += worker.sum;
		patched += worker.patched;
		traps += worker.traps;
		wrong_calls += worker.wrong_calls;
	}
	EXPECT_VALUE(old_sum, 0, "the old sum after the change");
	EXPECT_VALUE(new_sum, sum, "the new sum");
	EXPECT_EQ(new_calls, patched, "calls of the new routine");
	EXPECT_EQ(traps, patched, "SIGTRAPs for calls of the new routine");
	EXPECT_EQ(wrong_calls, 0, "calls with a wrong SIGTRAP or a wrong result");
	EXPECT_EQ(event.count(), uses.globals()->hotpatch_calls,
		  "hits counted, as many as runs of the program");
}
