/* SPDX-License-Identifier: GPL-2.0 */
/* The current time. clock_gettime(2) does not fail with these clocks. */
#pragma once

#include <cstdint>
#include <ctime>

inline uint64_t nanoseconds_now(clockid_t clock = CLOCK_MONOTONIC)
{
	timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

inline long milliseconds_now()
{
	return nanoseconds_now() / 1000000;
}

inline double seconds_now()
{
	return nanoseconds_now() / 1e9;
}

/* Spins mostly in user mode: reading the clock may be a system call, so it is read rarely. */
inline void spin(long milliseconds)
{
	for (long end = milliseconds_now() + milliseconds; milliseconds_now() < end;)
		for (volatile int i = 0; i < 100000;)
			i = i + 1;
}
