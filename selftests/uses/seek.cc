// SPDX-License-Identifier: GPL-2.0
/*
 * Seek: run a process to the nth arrival at an address with given registers, as the
 * record-and-replay debugger rr does. The kernel rejects all other arrivals, so that the debugger
 * is woken once and not for every iteration of a loop.
 *
 * Recipe: open an execute breakpoint on the tracee with O_ASYNC, F_SETSIG to SIGTRAP and
 * F_SETOWN_EX to the tracee's thread, so that the tracer sees the signal of an accepted hit before
 * the tracee does. Put the condition into the program's globals. Move the breakpoint with
 * PERF_EVENT_IOC_MODIFY_ATTRIBUTES, which keeps the program. Then PTRACE_CONT and one waitpid().
 */
#include <random>
#include <vector>

#include "uses/tracee.h"

TEST("uses.seek", "C1", "a debugger that seeks to one of many arrivals is woken once")
{
	Uses uses("seek");
	SeekTracee tracee(uses.prog_fd(), uses.globals());
	std::vector<Registers> oracle = tracee.step_through_a_lap();
	/* The last arrival of the second lap, identified by its place and its first argument. */
	const uint64_t target = 2 * LAP - 1;
	const Registers &wanted = oracle.back();
	uint64_t nth = 0, hits = 0;

	for (const Registers &arrival : oracle) {
		nth += arrival.matches(wanted, 1 << 0);
		hits += arrival.matches(wanted, 0);
	}
	EXPECT_EQ(tracee.seek(wanted, 1 << 0, nth, target), 1, "wakeups of the tracer");
	EXPECT_EQ(tracee.arrived(), target, "arrivals before the one at which the tracee stopped");
	EXPECT_TRUE(tracee.registers() == wanted,
		    "the registers are those that single-stepping recorded");
	EXPECT_EQ(tracee.end(), hits, "hits counted");
}

TEST("uses.seek.random", "C1",
     "seeks with 1000 random conditions stop at the arrival that single-stepping predicts")
{
	constexpr int CONDITIONS = 1000;
	Uses uses("seek");
	SeekTracee tracee(uses.prog_fd(), uses.globals());
	std::vector<Registers> oracle = tracee.step_through_a_lap();
	std::mt19937_64 random(1);
	uint64_t hits = 0;

	for (uint64_t i = 0, last = LAP - 1; i < CONDITIONS; i++) {
		/* Within one lap from the last target. Any subset of the arguments matters. */
		const uint64_t target = last + 1 + random() % LAP;
		const uint32_t matters = random() % 16;
		const Registers &wanted = oracle[target % LAP];
		uint64_t nth = 0;

		while (++last <= target) {
			nth += oracle[last % LAP].matches(wanted, matters);
			hits += oracle[last % LAP].matches(wanted, 0);
		}
		last = target;

		uint64_t wakeups = tracee.seek(wanted, matters, nth, target);

		EXPECT_EQ(wakeups, 1, "wakeups of the tracer for one seek");
		if (tracee.arrived() != target || tracee.registers() != wanted)
			fail("expected arrival %llu, got %llu: seek %llu",
			     static_cast<unsigned long long>(target),
			     static_cast<unsigned long long>(tracee.arrived()),
			     static_cast<unsigned long long>(i));
		if (wakeups != 1)
			return;
	}
	EXPECT_EQ(tracee.end(), hits, "hits counted");
}
