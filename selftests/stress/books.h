/* SPDX-License-Identifier: GPL-2.0 */
/* The books that actors keep, in memory that all processes of a round share. */
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

/* What one actor says in the end. */
struct Books {
	uint64_t hits, accepted, rejected,
		misses; /* all that were counted, and what became of them */
	uint64_t samples, signals, traps, hups; /* delivered */
	uint64_t lost, extra; /* of any of these: what came too few or too many */
};

/* What actors and noise have in common with main(). */
struct Slot {
	Books books;
	bool closed;
	std::atomic<uint64_t> from_children; /* SIGTRAPs of forked members of a family */
	pid_t pid;
	char difference[240]; /* the first */
};

constexpr int MOST = 16;

struct Shared {
	std::atomic<bool> stop; /* for all */
	std::atomic<bool> ended; /* all but the last */
	std::atomic<bool> probed; /* kprobes are there */
	int actors;
	Slot slots[MOST]; /* theirs, and then those of the noise */
};

extern Shared *shared;
extern Slot *slot; /* mine, in an actor or in noise */

/* Whether the round is. */
inline bool over()
{
	return shared->stop.load(std::memory_order_relaxed);
}

/* What is wrong, for the report; the first stays. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);

/* Compare what was due with what came: what was lost and what was too much goes into the books. */
void expect(const char *what, uint64_t expected, uint64_t came);
void expect_at_most(const char *what, uint64_t most, uint64_t came);
void expect_at_least(const char *what, uint64_t least, uint64_t came);
/* As many, but not the same. */
void expect_same(const char *what, uint64_t expected, uint64_t came);

void add(Books &sum, const Books &books);
void print_books(const char *of, const Books &books);
