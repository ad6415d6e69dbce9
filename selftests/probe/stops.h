/* SPDX-License-Identifier: GPL-2.0 */
/* What becomes of a task that was told of a hit: a tracee that was stopped, a handler that returns. */
#pragma once

#include "lib/effects.h"

struct Stop {
	const char *id, *title;
	/* HITS if the kernel does it right; measures in the calling process. */
	uint64_t (*measure)();
	const char *when_fewer, *when_more; /* how the probe says it, if there is such a case */
};

constexpr int STOPS = 3;
extern const Stop stops[STOPS];
