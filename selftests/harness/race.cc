// SPDX-License-Identifier: GPL-2.0
#include "harness/race.h"

#include <algorithm>

#include "lib/clock.h"

uint64_t race_limit = ANY_TIME;

double race_seconds(double own, double least)
{
	return std::min(own, std::max(static_cast<double>(race_limit), least));
}

Bound::Bound(double own, uint64_t most, double least)
	: most_(most)
	, end_(seconds_now() + race_seconds(own, least))
{
}

bool Bound::reached(uint64_t done) const
{
	return done >= most_ || seconds_now() > end_;
}
