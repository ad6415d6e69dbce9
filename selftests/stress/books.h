/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The books of the actors: the numbers of hits and of their effects, expected and delivered. All
 * processes of a round share the memory that has the books.
 */
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/* The result of one actor. */
struct Books {
	uint64_t hits, accepted, rejected, misses; /* all counted hits, by their result */
	uint64_t samples, signals, traps, hups; /* delivered */
	uint64_t lost, extra; /* missing effects, and effects beyond the expected number */
};

/* Shared between main() and one actor or noise. */
struct Slot {
	Books books;
	bool closed;
	std::atomic<uint64_t> from_children; /* SIGTRAPs of forked members of a family */
	pid_t pid;
	char difference[240]; /* the first message of say() */
};

constexpr int MOST = 16;

struct Shared {
	std::atomic<bool> stop; /* all processes must end */
	std::atomic<bool> ended; /* all but the last process have ended */
	std::atomic<bool> probed; /* the kprobes are attached */
	int actors;
	Slot slots[MOST]; /* of the actors, then of the noises */
};

extern Shared *shared;
extern Slot *slot; /* of the calling actor or noise */

/* Whether the round is over. */
inline bool over()
{
	return shared->stop.load(std::memory_order_relaxed);
}

/* Records what is wrong, for the report. Only the first call counts. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* Compare the expected with the actual number of @things; the difference goes into the books. */
void expect(const char *things, uint64_t expected, uint64_t came);
void expect_at_most(const char *things, uint64_t most, uint64_t came);
void expect_at_least(const char *things, uint64_t least, uint64_t came);
/* Compares the sums of the values of @things, to detect a wrong one among the right number. */
void expect_same(const char *things, uint64_t expected, uint64_t came);

void add(Books &sum, const Books &books);
void print_books(const char *of, const Books &books);
