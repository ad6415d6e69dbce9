/* SPDX-License-Identifier: GPL-2.0 */
/* What nearly every test needs. */
#pragma once

#include "harness/test.h"
#include "lib/arch.h"
#include "lib/child.h"
#include "lib/cpus.h"
#include "lib/effects.h"
#include "lib/fail.h"
#include "lib/filter.h"
#include "lib/ring.h"
#include "lib/signals.h"

/* Runs @body in a child, to its end. */
template <typename Body>
void in_child(Body body, CallSite at = CallSite::of_call())
{
	Child child([&] {
		body();
		return 0;
	});

	expect(std::equal_to(), "", child.wait(), 0, "exit of the child", at.file,
	       at.line);
}

/* For a test that has the kernel hit by what it does to user memory. */
inline void need_kernel_hits()
{
	if (!WATCHES_KERNEL)
		unavailable("the kernel hits no watchpoint of user memory on this architecture");
}

/* The event, with the program if the verdict has one. */
inline void enable(Event &event, Filter &filter, Verdict verdict)
{
	filter.returns(verdict.returns);
	if (verdict.attached)
		event.must_attach(filter);
	event.enable();
}

/* The event has counted @hits, and the program has run for each. */
inline void expect_hits(const Event &event, const Filter &filter, uint64_t hits,
			CallSite at = CallSite::of_call())
{
	expect(std::equal_to(), "", event.count(), hits, "hits counted", at.file, at.line);
	expect(std::equal_to(), "", filter.runs(), hits, "runs of the program", at.file,
	       at.line);
}

/* Of the hits so many have left a sample and sent SETSIG; drain() comes before. */
inline void expect_delivered(const Ring &ring, uint64_t hits,
			     CallSite at = CallSite::of_call())
{
	expect(std::equal_to(), "", ring.samples(), hits, "samples", at.file, at.line);
	expect(std::equal_to(), "", Signals::count(SETSIG), hits, "signals", at.file,
	       at.line);
}

/*
 * On a switch from a task to its child the kernel swaps their contexts if these are clones. Calls @open in a
 * task, forks, and lets the parent exit with the context of the child. Then calls @work with the event in the
 * child, and returns its result. The caller is bound to one CPU.
 */
template <typename Open, typename Work> uint64_t after_exit_with_context_of_child(Open open, Work work)
{
	struct Both {
		std::atomic<bool> sleeps, exited, done;
		std::atomic<uint64_t> result;
	};
	auto &both = shared_with_children<Both>();
	Child parent([&] {
		Event event(open());

		event.enable();
		if (fork()) {
			/* The switch to the child is a swap; the one back, from the idle task, is none. */
			both.sleeps = true;
			usleep(10'000);
			_exit(0);
		}
		while (!both.sleeps)
			sched_yield();
		for (clock_t begun = clock(); clock() - begun < CLOCKS_PER_SEC / 500;)
			;
		usleep(20'000);
		while (!both.exited)
			usleep(1000);
		both.result = work(event);
		both.done = true;
		_exit(0);
		return 0;
	});

	parent.wait();
	both.exited = true;
	while (!both.done)
		usleep(1000);
	return both.result;
}
