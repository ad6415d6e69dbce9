// SPDX-License-Identifier: GPL-2.0
#include "harness/race.h"

#include <algorithm>

#include "lib/clock.h"

uint64_t race_limit = ANY_TIME;

double race_seconds(double seconds)
{
	return std::min(seconds, static_cast<double>(race_limit));
}

static constexpr double LONGEST_SECONDS = 25;

Bound::Bound(double seconds, uint64_t most, uint64_t least)
	: most_(most)
	, least_(least)
	, end_(seconds_now() + race_seconds(seconds))
	, latest_(std::max(end_, seconds_now() + LONGEST_SECONDS))
{
}

bool Bound::reached(uint64_t done, uint64_t met) const
{
	const double now = seconds_now();

	return now > latest_ || (met >= least_ && (done >= most_ || now > end_));
}

void Bound::met(uint64_t times, const char *things, bool lost, CallSite at) const
{
	report_met(times, least_);
	if (!lost)
		expect(std::greater_equal(), "at least ", times, least_, things, at.file, at.line);
}
