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

/* Whether a hit that a program rejects sends no SIGTRAP: else perf_bpf_gdb passes everything on. */
inline bool kernel_rejects_sigtrap()
{
	Setup setup;

	setup.sigtrap = true;
	return has_sigtrap() && !observe(setup, rejects).sigtrap;
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
