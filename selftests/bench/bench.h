/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of perf_bpf_bench share. */
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/clock.h"
#include "lib/event.h"
#include "lib/program.h"

#include <bench.skel.h>

/* What a part has measured. */
struct Row {
	std::string id, title;
	bool program = false; /* that decides */
	std::vector<std::pair<const char *, double>> figures = {};
	std::string why = ""; /* there are none */
};

struct Table {
	std::vector<Row> rows;
	std::vector<std::string> notes = {};
};

/* Each is measured so often, in turn with what it is compared to; the ways once. */
Table hits(int rounds);
Table overflows(int rounds);
Table stops(int rounds);
Table scaling(int rounds);
Table profile(int rounds);
Table replay(int rounds);

/* The middle and the ends. */
struct Spread {
	double median, least, most;
};

Spread spread(std::vector<double> values);

/* What @ticks are to @floor, round by round: "ratio" and its ends, if there is a floor. */
void add_ratio(Row &row, const std::vector<double> &ticks, const std::vector<double> &floor);

/* What is measured now, for whoever reads an error. */
extern const char *measuring;

/* Ends the process if the two differ: a figure of something else is worse than none. */
void expect(const char *what, uint64_t seen, uint64_t expected);

[[noreturn]] void give_up(const char *what, const char *why = "");

/* The TSC; on arm64 the virtual counter, elsewhere nanoseconds. */
inline uint64_t now()
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t ticks;

	asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks) : : "memory");
	return ticks;
#else
	return nanoseconds_now(CLOCK_MONOTONIC_RAW);
#endif
}

/* Of ticks. */
double microseconds(double ticks);

using Bench = Loaded<bench>;

/*
 * A loop that comes by one address over and over, and what is known of it: in memory that the
 * processes share which arrive, supervise and measure.
 */
struct Run {
	static constexpr uint64_t SLOTS = 1024;

	char why[128]; /* it cannot be measured */
	uint64_t arrivals, wanted; /* how often the loop comes by, and when it is to be stopped */
	uint64_t stops, stopped_at; /* how often it was, and the last time */
	uint64_t began, stopped; /* CPU time when somebody set out to stop it, and had */
	volatile uint64_t go, ended; /* the loop, where it waits for somebody to look on */
	struct {
		uint64_t before, after;
	} taken[SLOTS]; /* by the last arrivals */
};

extern Run *const run;

/* That may be used; all but the measurements that say so are on the last one. */
extern const std::vector<int> cpus;

/* The address; @nth is in the first argument's register, and then in a word of memory. */
extern "C" void arrive(uint64_t nth);

/* Comes by, and takes the time of each. */
void loop(uint64_t from, uint64_t to);
inline void loop()
{
	loop(0, run->arrivals);
}

/* What one of the last arrivals took, p50. */
double ticks_of_one();

/* Whether a rejected hit leaves no signal, on this kernel. */
bool suppresses();

/* Whether who handles the signal of a hit itself meets the hit again: on arm64 without 0030. */
bool hits_again();
constexpr char HITS_AGAIN[] = "who returns from the handler of a hit hits again";

/*
 * Does @body in a child of its own, so that no signal, tracer or event is left over, and no loop
 * goes on for ever. False if what it needs is not there: run->why.
 */
bool run_in_child(uint64_t arrivals, uint64_t wanted, void (*body)(int), int argument = 0);
