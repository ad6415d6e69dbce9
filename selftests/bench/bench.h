/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the parts of perf_bpf_bench. */
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/clock.h"
#include "lib/event.h"
#include "lib/program.h"

#include <bench.skel.h>

/* One line of the results of a part. */
struct Row {
	std::string id, title;
	bool program = false; /* a BPF program decides on the hit */
	std::vector<std::pair<const char *, double>> figures = {};
	std::string why = ""; /* the reason if there are no figures */
};

struct Table {
	std::vector<Row> rows;
};

/* stops() measures each row @rounds times, alternating with the rows to compare it with. */
Table hits(int rounds);
Table overflows(int rounds);
Table stops(int rounds);

struct Spread {
	double median, least, most;
};

Spread spread(std::vector<double> values);

/* Adds the ratio of @ticks to @floor, round by round: median, least and most. */
void add_ratio(Row &row, const std::vector<double> &ticks, const std::vector<double> &floor);

/* The id of what is being measured, for error messages. */
extern const char *measuring;

/*
 * Ends the process if the numbers of @things differ: a wrong figure is worse than none.
 * "expected 1200 hits counted, got 0"
 */
void expect(const char *things, uint64_t seen, uint64_t expected);

[[noreturn]] void give_up(const char *what, const char *why = "");

/* The TSC, on arm64 the virtual counter, on other architectures nanoseconds. */
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

double microseconds(double ticks);

using Bench = Loaded<bench>;

/*
 * A loop that arrives at one address many times, and its state, in memory that is shared by the
 * processes that arrive, supervise and measure.
 */
struct Run {
	static constexpr uint64_t SLOTS = 1024;

	char why[128]; /* the reason if it cannot be measured */
	uint64_t arrivals, wanted; /* the number of arrivals, and the one at which to stop */
	uint64_t stops, stopped_at; /* the number of stops, and the arrival of the last one */
	volatile uint64_t go, ended; /* start and end of a loop that waits for its supervisor */
	struct {
		uint64_t before, after;
	} timestamps[SLOTS]; /* ticks before and after each of the last arrivals */
};

extern Run *const run;

/* The usable CPUs. Unless a measurement says otherwise, it runs on the last one. */
extern const std::vector<int> cpus;

/* Where to stop. @nth is in the first argument register, and is then stored in a word of memory. */
extern "C" void arrive(uint64_t nth);

/* Calls arrive() with @from to @to - 1, and records the ticks of each call. */
void loop(uint64_t from, uint64_t to);
inline void loop()
{
	loop(0, run->arrivals);
}

/* The ticks of one arrival: the median of the last ones. */
double ticks_of_one();

/* Whether this kernel suppresses the signal of a rejected hit. */
bool suppresses();

/* Whether a thread hits again when it returns from its handler: arm64 without patch 0403. */
bool hits_again();
constexpr char HITS_AGAIN[] = "a thread that returns from the handler of its hit hits again";

/*
 * Calls @body in a child with a deadline, so that no signal, tracer or event is left over. Returns
 * false, with the reason in run->why, if something that @body needs is unavailable.
 */
bool run_in_child(uint64_t arrivals, uint64_t wanted, void (*body)(int), int argument = 0);
