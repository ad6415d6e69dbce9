/* SPDX-License-Identifier: GPL-2.0 */
/* How long a test that provokes a race keeps trying. It ends at the first loss in any case. */
#pragma once

#include <cstdint>

/* What --race-seconds sets: no race is tried for longer. */
inline constexpr uint64_t ANY_TIME = UINT64_MAX;
extern uint64_t race_limit;

/*
 * Seconds for a race that deserves @own seconds when there is time: those, or --race-seconds if
 * that is less. A race that a stock kernel needs longer to lose has @least, which the option
 * does not cut.
 */
double race_seconds(double own, double least = 0);

/* The end of the tries: @most of them, or race_seconds(own, least). */
class Bound {
public:
	explicit Bound(double own, uint64_t most = UINT64_MAX, double least = 0);
	bool reached(uint64_t done = 0) const;

private:
	uint64_t most_;
	double end_;
};
