/* SPDX-License-Identifier: GPL-2.0 */
/* The functions on which breakpoints are set, and how often they are called. */
#pragma once

#include <cstdint>

constexpr uint64_t HITS = 20; /* of the breakpoint in one measurement */
constexpr uint64_t LIMIT = 5; /* for PERF_EVENT_IOC_REFRESH, if an event has a limit */

/* The function is neither inlined nor cloned: at its entry its arguments are in registers. */
#ifdef __clang__
#define NOINLINE_NOCLONE __attribute__((noinline))
#else
#define NOINLINE_NOCLONE __attribute__((noipa))
#endif

/* Functions for execute breakpoints; @value is in the first argument register. */
void hit(uint64_t value);
void hit_other(uint64_t value);

/* Call them with the values from 0 to @times - 1. */
void hit_times(uint64_t times);
void hit_other_times(uint64_t times);
