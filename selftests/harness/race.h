/* SPDX-License-Identifier: GPL-2.0 */
/* How long a test that provokes a race keeps trying. It always stops at the first loss. */
#pragma once

#include <cstdint>

/* Set by --race-seconds: no race is tried for longer. */
inline constexpr uint64_t ANY_TIME = UINT64_MAX;
extern uint64_t race_limit;

/*
 * Seconds to provoke a race: @seconds, or --race-seconds if that is less. A test that needs more
 * time to lose its race on the stock kernel does not call this.
 */
double race_seconds(double seconds);

/* The end of a race: after @most tries, or after race_seconds(@seconds). */
class Bound {
public:
	explicit Bound(double seconds, uint64_t most = UINT64_MAX);
	bool reached(uint64_t done = 0) const;

private:
	uint64_t most_;
	double end_;
};
