/* SPDX-License-Identifier: GPL-2.0 */
/* What breakpoints are put on, and how often it is hit. */
#pragma once

#include <cstdint>

constexpr uint64_t HITS = 20; /* of the breakpoint in one measurement */
constexpr uint64_t LIMIT = 5; /* PERF_EVENT_IOC_REFRESH, where a set-up has a limit */

/* Before a function: neither inlined nor cloned, its arguments in their registers at its entry. */
#ifdef __clang__
#define KEPT_APART __attribute__((noinline))
#else
#define KEPT_APART __attribute__((noipa))
#endif

/* Functions to put breakpoints on; @value arrives in the first argument register. */
void hit(uint64_t value);
void hit_other(uint64_t value);

/* With the values from 0 on. */
void hit_times(uint64_t times);
void hit_other_times(uint64_t times);
