/* SPDX-License-Identifier: GPL-2.0 */
/* An event whose group is throttled: C10. */
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/clock.h"
#include "lib/cpus.h"
#include "lib/sysctl.h"
#include "tests/common.h"

/* The event only counts. */
inline perf_event_attr without_period(perf_event_attr attr)
{
	attr.sample_period = 0;
	return attr;
}

/*
 * When an event is throttled, Linux 7 stops its whole group. A sibling must count again afterwards
 * even if its task was scheduled out while the group was throttled.
 */
inline void check_group_throttled(perf_event_attr attr, void (*hits)(uint64_t times))
{
	constexpr int TRIES = 20;
	constexpr long ENOUGH_MILLISECONDS = 5000;
	constexpr uint64_t NEVER = 1ull << 40; /* ns */
	perf_event_attr clock = {};
	SlowSampling slow;
	uint64_t counted = 0;

	clock.type = PERF_TYPE_SOFTWARE;
	clock.size = sizeof(clock);
	clock.config = PERF_COUNT_SW_TASK_CLOCK;
	clock.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	clock.disabled = 1;
	clock.sample_period = 100000; /* ns */
	clock.exclude_kernel = 1;
	/* On PREEMPT_RT a wakeup preempts this task, and being scheduled in ends the throttle. */
	clock.wakeup_events = 0;
	attr.disabled = 0;

	/* One group for all tries, because closing a uprobe takes seconds on PREEMPT_RT. */
	Event leader(clock), sibling(attr, 0, -1, &leader);
	Ring ring(leader);

	leader.enable();
	for (int i = 0; i < TRIES; i++) {
		uint64_t throttles = ring.records(PERF_RECORD_THROTTLE);

		leader.set_period(clock.sample_period);
		for (long waited = 0;; waited++) {
			if (waited > ENOUGH_MILLISECONDS)
				fail("expected PERF_RECORD_THROTTLE within %ld ms, got none",
				     ENOUGH_MILLISECONDS);
			spin(1);
			ring.drain();
			if (ring.records(PERF_RECORD_THROTTLE) >
			    std::max(throttles, ring.records(PERF_RECORD_UNTHROTTLE)))
				break;
		}
		force_reschedule();
		leader.set_period(NEVER);

		uint64_t before = sibling.count();

		hits(HITS);

		uint64_t counts = sibling.count() - before;

		if (counts != HITS && counted == i * HITS)
			note("%llu hits counted after throttle %d, the first with a wrong count",
			     (unsigned long long)counts, i);
		counted += counts;
	}
	EXPECT_EQ(counted, TRIES * HITS, "hits counted after the throttles");
}
