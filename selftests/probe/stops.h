/* SPDX-License-Identifier: GPL-2.0 */
/* How a task continues after a hit was reported: a stopped tracee, or a handler that returns. */
#pragma once

#include "lib/effects.h"

struct Stop {
	const char *id, *title;
	/* Measures in the calling process. Returns HITS if the kernel is correct. */
	uint64_t (*measure)();
	const char *when_fewer, *when_more; /* in the probe's output; nullptr if impossible */
};

constexpr int STOPS = 3;
extern const Stop stops[STOPS];
