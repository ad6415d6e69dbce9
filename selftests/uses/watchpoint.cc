// SPDX-License-Identifier: GPL-2.0
/*
 * A conditional watchpoint in all threads: which thread writes to an object without owning it, or
 * writes a value that the object must never have? A race detector that samples objects in
 * production (GWP-TSan) needs to know. Correct writes cost no signal. Each wrong write raises
 * SIGTRAP in the thread that made it, before its next instruction, so that its stack is the report.
 *
 * Recipe: before the threads are created, open a watchpoint with attr.inherit, inherit_thread,
 * sigtrap and remove_on_exec. The program compares the thread with the owner, and the new value,
 * which it reads at ctx->addr, with the forbidden one; both are in the program's globals. On arm64,
 * where a watchpoint hits before the write, the program reads the old value.
 */
#include <barrier>
#include <mutex>
#include <thread>
#include <vector>

#include "uses/uses.h"

static constexpr uint64_t THREADS = 16, WRITES = 40, FORBIDDEN = 0xdead;

static volatile uint64_t object;

/* The report: the number of SIGTRAPs, and how many of them were not about the object. */
static thread_local volatile uint64_t traps, unrelated_traps;

static void on_trap(int, siginfo_t *info, void *)
{
	traps = traps + 1;
	/* si_perf_data (attr.sig_data) follows si_addr; glibc 2.36 has no name for it. */
	if (info->si_code != TRAP_PERF || info->si_addr != &object)
		unrelated_traps = unrelated_traps + 1;
}

/* The results of one thread. */
struct Report {
	uint64_t traps, unrelated; /* SIGTRAPs */
	uint64_t trap_mismatches; /* writes with a missing or unexpected SIGTRAP */
};

/* A write that must raise SIGTRAP immediately, or must not raise it. */
static void write(uint64_t value, bool must_trap, Report &report)
{
	uint64_t before = traps;

	object = value;
	report.trap_mismatches += traps - before != must_trap;
}

/* Runs @body in THREADS concurrent threads, with the watchpoint enabled. */
template <typename Body> static void watched(Uses &uses, uint64_t writes, uint64_t wrong, Body body)
{
	Handler handler(SIGTRAP, on_trap);
	Event event = event_in_all_threads(breakpoint(Access::WRITE, &object, sizeof(object)));
	std::vector<Report> reports(THREADS);
	std::vector<std::thread> threads;
	std::barrier start(THREADS);
	Report sum = {};

	uses.globals()->watch_forbidden = FORBIDDEN;
	event.enable(uses);
	for (uint64_t i = 0; i < THREADS; i++)
		threads.emplace_back([&, i] {
			start.arrive_and_wait();
			body(i, reports[i]);
			reports[i].traps = traps;
			reports[i].unrelated = unrelated_traps;
		});
	for (auto &thread : threads)
		thread.join();

	for (auto &report : reports) {
		sum.traps += report.traps;
		sum.unrelated += report.unrelated;
		sum.trap_mismatches += report.trap_mismatches;
	}
	EXPECT_EQ(event.count(), writes, "writes counted");
	EXPECT_EQ(uses.globals()->watch_writes, writes, "writes seen by the program");
	EXPECT_EQ(sum.traps, wrong, "SIGTRAPs for wrong writes");
	EXPECT_EQ(sum.unrelated, 0, "SIGTRAPs for something other than the object");
	EXPECT_EQ(sum.trap_mismatches, 0, "writes with a missing or unexpected SIGTRAP");
}

TEST("uses.watchpoint", "C1", "of 16 threads that write at once, all but the owner get SIGTRAP")
{
	Uses uses("watch");

	watched(uses, THREADS * WRITES, (THREADS - 1) * WRITES, [&](uint64_t i, Report &report) {
		static std::barrier owned(THREADS);

		/* The program sees the id of the initial PID namespace. */
		if (i == 0)
			uses.globals()->watch_owner = gettid();
		owned.arrive_and_wait();
		for (uint64_t w = 0; w < WRITES; w++)
			write(w, i != 0, report);
	});
}

TEST("uses.watchpoint.value", "C1", "the owner gets SIGTRAP when it writes the forbidden value")
{
	constexpr uint64_t EVERY = 4, TURNS = 10;
	constexpr uint64_t IN_A_TURN = WRITES / TURNS;

	if (STOPS_BEFORE_ACCESS)
		unavailable("a watchpoint of this architecture hits before the write");

	Uses uses("watch");
	std::mutex mutex;
	/* In each turn: the forbidden values, and one write without owning the object. */
	constexpr uint64_t WRONG = IN_A_TURN / EVERY + 1;

	watched(uses, THREADS * TURNS * (IN_A_TURN + 1), THREADS * TURNS * WRONG,
		[&](uint64_t, Report &report) {
			for (uint64_t turn = 0; turn < TURNS; turn++) {
				std::lock_guard lock(mutex);

				uses.globals()->watch_owner = gettid();
				for (uint64_t w = 0; w < IN_A_TURN; w++) {
					bool wrong = w % EVERY == 0;

					write(wrong ? FORBIDDEN : w, wrong, report);
				}
				uses.globals()->watch_owner = 0;
				write(0, true, report);
			}
		});
}
