/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The counts of the actors: the numbers of hits and of their effects, expected and delivered. All
 * processes of a round share the memory that has the counts.
 */
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/* The result of one actor. */
struct Counts {
	uint64_t hits, accepted, rejected, misses; /* all counted hits, by their result */
	uint64_t samples, signals, traps, hups; /* delivered */
	uint64_t lost, extra; /* missing effects, and effects beyond the expected number */
};

/* Shared between main() and one actor or noise. */
struct Slot {
	Counts counts;
	bool closed;
	std::atomic<uint64_t> from_children; /* SIGTRAPs of forked members of a family */
	pid_t pid;
	char first_error[240]; /* the first message */
};

constexpr int MAX_SLOTS = 16;

struct Shared {
	std::atomic<bool> stop; /* all processes must end */
	std::atomic<bool> ended; /* all but the last process have ended */
	std::atomic<bool> probed; /* the kprobes are attached */
	int actors;
	Slot slots[MAX_SLOTS]; /* of the actors, then of the noises */
};

extern Shared *shared;
extern Slot *slot; /* of the calling actor or noise */

/* Whether the round is over. */
inline bool over()
{
	return shared->stop.load(std::memory_order_relaxed);
}

/* Records what is wrong, for the report. Only the first call counts. */
__attribute__((format(printf, 1, 2))) void error(const char *format, ...);

/* Compare the expected with the actual number of @things; the difference goes into the counts. */
void expect(const char *things, uint64_t expected, uint64_t actual);
void expect_at_most(const char *things, uint64_t most, uint64_t actual);
void expect_at_least(const char *things, uint64_t least, uint64_t actual);
/* Compares the sums of the values of @things, to detect a wrong one among the right number. */
void expect_same(const char *things, uint64_t expected, uint64_t actual);

void add(Counts &sum, const Counts &counts);
void print_counts(const char *of, const Counts &counts);
