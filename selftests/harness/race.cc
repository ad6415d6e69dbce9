// SPDX-License-Identifier: GPL-2.0
#include "harness/race.h"

#include <algorithm>

#include "lib/clock.h"

uint64_t race_limit = ANY_TIME;

double race_seconds(double seconds)
{
	return std::min(seconds, static_cast<double>(race_limit));
}

Bound::Bound(double seconds, uint64_t most)
	: most_(most)
	, end_(seconds_now() + race_seconds(seconds))
{
}

bool Bound::reached(uint64_t done) const
{
	return done >= most_ || seconds_now() > end_;
}
