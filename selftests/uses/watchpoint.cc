// SPDX-License-Identifier: GPL-2.0
/*
 * A conditional watchpoint over all threads: who writes to this object without owning it, or
 * writes what must never be in it? A race detector that samples objects (GWP-TSan) asks this in
 * production: the writes that are in order cost no signal, and each of the others is a SIGTRAP in
 * the very thread that did it, before its next instruction: its stack is the report.
 *
 * Recipe: before the threads are created, a watchpoint with attr.inherit, inherit_thread, sigtrap
 * and remove_on_exec; a program that compares the thread with the owner, and the new value, which
 * it reads at ctx->addr, with the forbidden one; owner and value in the program's globals. On arm64,
 * which stops before the write, it is the old value that is read.
 */
#include <barrier>
#include <mutex>
#include <thread>
#include <vector>

#include "uses/uses.h"

static constexpr uint64_t THREADS = 16, WRITES = 40, FORBIDDEN = 0xdead;

static volatile uint64_t object;

/* The report: here, that it came, and whether it was about the object. */
static thread_local volatile uint64_t traps, strange_traps;

static void on_trap(int, siginfo_t *info, void *)
{
	traps = traps + 1;
	/* Since glibc 2.36 has no name for it: si_perf_data, attr.sig_data, follows si_addr. */
	if (info->si_code != TRAP_PERF || info->si_addr != &object)
		strange_traps = strange_traps + 1;
}

/* What a thread saw of its own writes. */
struct Report {
	uint64_t traps, strange, /* SIGTRAPs */
		out_of_place; /* a trap too many, too few or not with the write */
};

/* A write that must, or must not, trap here and now. */
static void write(uint64_t value, bool must_trap, Report &report)
{
	uint64_t before = traps;

	object = value;
	report.out_of_place += traps - before != must_trap;
}

/* Watches @body in THREADS threads, which start together. */
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
			reports[i].strange = strange_traps;
		});
	for (auto &thread : threads)
		thread.join();

	for (auto &report : reports) {
		sum.traps += report.traps;
		sum.strange += report.strange;
		sum.out_of_place += report.out_of_place;
	}
	EXPECT_EQ(event.count(), writes, "writes counted");
	EXPECT_EQ(uses.globals()->watch_writes, writes, "writes that the program judged");
	EXPECT_EQ(sum.traps, wrong, "SIGTRAPs, one for each wrong write");
	EXPECT_EQ(sum.strange, 0, "SIGTRAPs about something else");
	EXPECT_EQ(sum.out_of_place, 0, "writes whose thread did not get what it should");
}

TEST("uses.watchpoint", "C1", "of 16 threads that write at once, all but the owner get SIGTRAP")
{
	Uses uses("watch");

	watched(uses, THREADS * WRITES, (THREADS - 1) * WRITES, [&](uint64_t i, Report &report) {
		static std::barrier owned(THREADS);

		/* The id as the kernel has it: in a PID namespace it would be another. */
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
	/* In each turn so many forbidden values, and one write when the object is no longer owned.
	 */
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
