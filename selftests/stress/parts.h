/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The parts of a round: actors, which hit; meddlings with an actor's event; and noise. Each is
 * drawn from a table.
 */
#pragma once

#include <cstdint>
#include <span>

#include "lib/random.h"

/* Effects of an accepted hit. */
enum : uint32_t { SAMPLES = 1, SIGNALS = 2, TRAPS = 4 };

/* The counts that cannot be predicted because of a meddler. */
enum : uint32_t {
	DETACHES = 1, /* a hit may find no program, so all hits must be accepted */
	MISSES_HITS = 2, /* the event is off at times, so only the program counts the hits */
	UNMAPS = 4, /* there is no ring at times */
	SILENCES = 8, /* O_ASYNC is off at times */
	MOVES_SIGNALS = 16, /* signals go to another thread and may arrive later */
	MERGES_SIGNALS = 32, /* not because of a meddler: machine.merges_signals */
};

class Scene;

/* An action that another thread repeats on the event of an actor. */
struct Meddling {
	const char *name;
	uint32_t unpredictable;
	void (*act)(Scene &scene, uint64_t round);
	bool of_breakpoints = false; /* only breakpoints */

	/* Whether it is possible with an actor that has these effects. */
	bool possible_if(uint32_t effects, bool inherited) const;
};

struct Actor;

/* The part of one actor, which is drawn by the seed of the round. */
struct Part {
	const Actor *actor;
	const Meddling *meddling; /* or nullptr */
	uint32_t effects;
	uint64_t mask, seed;
	int cpu; /* or -1 */
	bool wakes; /* attr.wakeup_events */
	bool blocks_signals; /* blocks the signals in every other batch */
	bool overfills_ring; /* does not empty the ring, so that samples are lost */
	bool by_link;
	bool stats; /* bpf_enable_stats() */

	bool misses_hits() const { return meddling && meddling->unpredictable & MISSES_HITS; }
};

struct Actor {
	const char *name;
	unsigned weight;
	uint32_t effects; /* all that it supports; those of a part are drawn from them */
	void (*run)(const Part &part);
	uint32_t flags = 0;

	bool is(uint32_t flag) const { return flags & flag; }
};

/* Flags of an actor. */
enum : uint32_t {
	MEDDLED = 1, /* a meddler may change its event */
	IN_KERNEL = 2, /* its hits are in kernel mode */
	INHERITED = 4, /* members of a family inherit its event */
	ALL_EFFECTS = 8, /* it has all its effects, whatever is drawn */
	ACCEPTS_ALL = 16, /* it accepts all hits, whatever is drawn */
	NEEDS_MISSES = 32, /* the kernel must count misses */
	NEEDS_PMU = 64, /* the PMU of module/ must be loaded */
	NEEDS_WATCHED_KERNEL = 128, /* the kernel's accesses to user memory must hit */
};

/* A disturbance that does not act on an actor's event. @make is called repeatedly. */
struct Noise {
	const char *name;
	void (*make)(Random &random);
	uint32_t flags = 0;
	bool (*possible)() = nullptr; /* nullptr: always */
};

/* Flags of a noise. */
enum : uint32_t {
	UNPLUGS = 1, /* it turns CPUs off and on */
	STARVES = 2, /* it slows down tasks that leave a CPU which is turned off */
	OUTLASTS = 4, /* it begins before all other parts and ends after them */
};

std::span<const Actor> actors();
std::span<const Meddling> meddlings();
std::span<const Noise> noises();

/* Entries in the table of actors.cc that are implemented in families.cc. */
void threads(const Part &part);
void forks(const Part &part);
void execs(const Part &part);

/* perf_bpf_stress --hit EVENT RESULT FROM, which execs() executes. Returns the exit code. */
int hit_after_exec(int event_fd, int result, uint64_t from);
