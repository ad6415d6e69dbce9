/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The side effects that a hit of a breakpoint can have, each with the set-up that shows it and
 * the numbers that it must show. The tests and the probe measure with the same code.
 */
#pragma once

#include <cstdint>

#include "lib/hit.h"

/* O_ASYNC: nothing, plain SIGIO to the process, or F_SETSIG with F_OWNER_TID. */
enum class Async { NONE, TO_PROCESS, TO_THREAD };

/* What hangs on the event. */
struct Setup {
	bool ring = false; /* a mapped ring buffer, polled after every hit */
	Async async = Async::NONE;
	bool sigtrap = false; /* attr.sigtrap */
	bool limit = false; /* enabled by REFRESH(LIMIT) */
};

/* What HITS hits did. */
struct Observed {
	uint64_t count; /* what the event counted */
	uint64_t runs; /* of the program */
	uint64_t samples; /* in the ring buffer */
	uint64_t polls; /* times that poll(2) was ready, asked once after each hit */
	uint64_t sigio; /* SIGIO */
	uint64_t setsig; /* the F_SETSIG signal */
	uint64_t sigtrap; /* SIGTRAP with si_code TRAP_PERF */
	uint64_t hups; /* F_SETSIG signals with si_code POLL_HUP */
	uint64_t taken; /* from the limit: LIMIT less the accepted hits it took to use it up */
};

struct Effect {
	const char *id, *title;
	Setup setup;
	uint64_t Observed::*seen;
	uint64_t accepted_count = HITS; /* counted when all are accepted: a limit stops at LIMIT */
	uint64_t accepted_seen = HITS; /* what HITS accepted hits show; rejected ones must show 0 */
	const char *when_seen = "delivered", *when_not = "suppressed"; /* how the probe says it */
};

constexpr int EFFECTS = 7;
extern const Effect effects[EFFECTS];

/* What the program says, if there is one. */
struct Verdict {
	bool attached;
	uint32_t returns;

	bool delivers() const { return !attached || returns; }
};

constexpr Verdict no_program = { false, 0 };
constexpr Verdict rejects = { true, 0 };

/* Hits a breakpoint in the calling thread HITS times. */
Observed observe(const Setup &setup, Verdict verdict);
