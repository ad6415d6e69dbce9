/* SPDX-License-Identifier: GPL-2.0 */
/* How long a test that provokes a race keeps trying. It always stops at the first loss. */
#pragma once

#include <cstdint>

#include "harness/test.h"

/* Set by --race-seconds: no race is tried for longer, unless its sides have met too seldom. */
inline constexpr uint64_t ANY_TIME = UINT64_MAX;
extern uint64_t race_limit;

/* Seconds to provoke a race: @seconds, or --race-seconds if that is less. */
double race_seconds(double seconds);

/*
 * The end of a race: after @most tries, or after race_seconds(@seconds). A test that saw no loss
 * proves something only if the race took place, so it is repeated until both sides have met
 * @least times, for 25 s at most: then the test still has time to fail before its deadline. @least
 * is a third of the lowest number in several runs of 3 s on a busy host, but 20 at least.
 */
class Bound {
public:
	explicit Bound(double seconds, uint64_t most = UINT64_MAX, uint64_t least = 0);
	/* @done: tries so far; @met: how often both sides have met */
	bool reached(uint64_t done = 0, uint64_t met = UINT64_MAX) const;
	/*
	 * Reports how often both sides have met, as a number of @things. If no loss was seen, the
	 * test fails if that is less than @least.
	 */
	void met(uint64_t times, const char *things, bool lost = false,
		 CallSite at = CallSite::of_call()) const;

private:
	uint64_t most_, least_;
	double end_, latest_;
};

/* Reports to the parent how often both sides of a race have met, and how often they must. */
void report_met(uint64_t times, uint64_t least);
