/* SPDX-License-Identifier: GPL-2.0 */
/* Who takes part in a round: actors, what meddles with them, and noise, each a table to draw from. */
#pragma once

#include <cstdint>
#include <span>

#include "lib/random.h"

/* What an accepted hit does. */
enum : uint32_t { SAMPLES = 1, SIGNALS = 2, TRAPS = 4 };

/* What a meddler takes from the books, which then know less. */
enum : uint32_t {
	DETACHES = 1, /* a hit may find no program: only with all accepted is it known */
	MISSES_HITS = 2, /* the event is off at times: what the program says counts */
	UNMAPS = 4, /* there is no ring at times */
	SILENCES = 8, /* there is no O_ASYNC at times */
	MOVES_SIGNALS = 16, /* they go to another thread, and come when they come */
	MERGES_SIGNALS = 32, /* not by a meddler: machine.merges_signals */
};

class Scene;

/* What another thread does to the event of an actor, over and over. */
struct Meddling {
	const char *name;
	uint32_t takes;
	void (*act)(Scene &scene, uint64_t round);
	bool of_breakpoints = false; /* alone */

	/* With an actor that has these effects. */
	bool possible_if(uint32_t effects, bool inherited) const;
};

struct Actor;

/* What one actor is to do; all of it follows from the round's seed. */
struct Part {
	const Actor *actor;
	const Meddling *meddling; /* or nullptr */
	uint32_t effects;
	uint64_t mask, seed;
	int cpu; /* or -1 */
	bool wakes; /* attr.wakeup_events */
	bool blocks; /* the signals, in every other batch */
	bool fills; /* lets the ring overflow */
	bool by_link;
	bool stats; /* bpf_enable_stats() */

	bool misses_hits() const { return meddling && meddling->takes & MISSES_HITS; }
};

struct Actor {
	const char *name;
	unsigned weight;
	uint32_t effects; /* that it can keep books of; which it has is drawn */
	void (*play)(const Part &part);
	uint32_t flags = 0;

	bool is(uint32_t flag) const { return flags & flag; }
};

/* Flags of an actor. */
enum : uint32_t {
	MEDDLED = 1, /* others may meddle with its event */
	IN_KERNEL = 2, /* its hits are in kernel mode */
	INHERITED = 4, /* its event is, by the members of a family */
	ALL_EFFECTS = 8, /* it has them, whatever is drawn */
	ACCEPTS_ALL = 16, /* whatever is drawn */
	NEEDS_MISSES = 32, /* counted by the kernel */
	NEEDS_PMU = 64, /* that of module/ */
	NEEDS_WATCHED_KERNEL = 128, /* what it does to user memory hits */
};

/* Nobody's event; @make is run over and over. */
struct Noise {
	const char *name;
	void (*make)(Random &random);
	uint32_t flags = 0;
	bool (*possible)() = nullptr; /* or it always is */
};

/* Flags of a noise. */
enum : uint32_t {
	UNPLUGS = 1, /* CPUs */
	STARVES = 2, /* who leaves a CPU that is unplugged */
	OUTLASTS = 4, /* begins before all others, and ends last */
};

std::span<const Actor> actors();
std::span<const Meddling> meddlings();
std::span<const Noise> noises();

/* Of actors.cc's table; whole families have a file of their own. */
void threads(const Part &part);
void forks(const Part &part);
void execs(const Part &part);

/* perf_bpf_stress --hit EVENT RESULT FROM, which execs() becomes; the exit code. */
int hit_after_exec(int event_fd, int result, uint64_t from);
