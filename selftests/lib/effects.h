/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The side effects that a breakpoint hit can have, each with the set-up that shows it and the
 * expected numbers. The tests and the probe share this code.
 */
#pragma once

#include <cstdint>

#include <functional>

#include "lib/event.h"
#include "lib/hit.h"

/* O_ASYNC: off, plain SIGIO to the process, or F_SETSIG with F_OWNER_TID. */
enum class Async { NONE, TO_PROCESS, TO_THREAD };

/* How the event is set up. */
struct Setup {
	bool ring = false; /* a mapped ring buffer, polled after every hit */
	Async async = Async::NONE;
	bool sigtrap = false; /* attr.sigtrap */
	bool limit = false; /* enabled by REFRESH(LIMIT) */
};

/* The effects that were observed after HITS hits. */
struct Observed {
	uint64_t count; /* the event's count */
	uint64_t runs; /* of the program */
	uint64_t samples; /* in the ring buffer */
	uint64_t polls; /* times that poll(2), called once after each hit, was ready */
	uint64_t sigio; /* SIGIO */
	uint64_t setsig; /* the F_SETSIG signal */
	uint64_t sigtrap; /* SIGTRAP with si_code TRAP_PERF */
	uint64_t hups; /* F_SETSIG signals with si_code POLL_HUP */
	uint64_t limit_used; /* by the hits; further hits use the rest of the limit */
	bool stopped; /* with a limit: further hits were not counted */
};

struct Effect {
	const char *id, *title;
	Setup setup;
	uint64_t Observed::*seen;
	uint64_t accepted_count = HITS; /* the count if all hits are accepted; a limit stops it */
	uint64_t accepted_seen = HITS; /* effects of HITS accepted hits; rejected hits have none */
	const char *when_seen = "delivered", *when_not = "suppressed"; /* in messages */
};

constexpr int EFFECTS = 7;
extern const Effect effects[EFFECTS];

/* Whether the event has a program, and what that returns. */
struct Verdict {
	bool attached;
	uint32_t returns;

	bool delivers() const { return !attached || returns; }
};

constexpr Verdict no_program = { false, 0 };
constexpr Verdict rejects = { true, 0 };

class Filter;

/* The event that is observed: by default a breakpoint in the calling thread. */
struct Subject {
	perf_event_attr attr = breakpoint(::hit);
	void (*hit)() = [] { ::hit(0); };
	pid_t pid = 0;
	int cpu = -1;
	/* Called after half of the hits, with the event and the link of its program. */
	std::function<void(Event &event, Fd &link)> halfway = {};
	/* Attached to the event; by default, observe() loads a program. */
	Filter *filter = nullptr;
};

/*
 * In some virtual machines breakpoints can be opened but are never hit. Returns a message if this
 * is one of them. Returns "" if breakpoints are hit, or if they cannot be opened.
 */
const char *why_not_hit();

/* Opens the event, hits it HITS times, and returns what happened. */
Observed observe(const Setup &setup, Verdict verdict, const Subject &subject = {});
