// SPDX-License-Identifier: GPL-2.0
#include "stress/books.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "lib/fail.h"

Shared *shared;
Slot *slot;

void error(const char *format, ...)
{
	va_list args;

	if (slot->first_error[0])
		return;
	va_start(args, format);
	vsnprintf(slot->first_error, sizeof(slot->first_error), format, args);
	va_end(args);
}

[[noreturn]] static void give_up(const char *what, const char *why)
{
	if (slot)
		error("gave up: %s%s%s", what, *why ? ": " : "", why);
	else
		fprintf(stderr, "perf_bpf_stress: %s%s%s\n", what, *why ? ": " : "", why);
	_exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, errno_name(err).c_str());
}

void unavailable(const char *reason)
{
	give_up(reason, "");
}

void expect(const char *things, uint64_t expected, uint64_t actual)
{
	if (actual == expected)
		return;
	slot->counts.lost += actual < expected ? expected - actual : 0;
	slot->counts.extra += actual > expected ? actual - expected : 0;
	error("expected %s, got %lu", quantity(std::to_string(expected), things).c_str(), actual);
}

void expect_same(const char *things, uint64_t expected, uint64_t actual)
{
	if (actual != expected)
		error("expected a sum of %#lx, got %#lx: %s", expected, actual, things);
}

void expect_at_most(const char *things, uint64_t most, uint64_t actual)
{
	expect(things, std::min(most, actual), actual);
}

void expect_at_least(const char *things, uint64_t least, uint64_t actual)
{
	expect(things, std::max(least, actual), actual);
}

void add(Counts &sum, const Counts &counts)
{
	static_assert(sizeof(counts) % sizeof(uint64_t) == 0, "nothing but numbers");
	for (size_t i = 0; i < sizeof(counts) / sizeof(uint64_t); i++)
		reinterpret_cast<uint64_t *>(&sum)[i] +=
			reinterpret_cast<const uint64_t *>(&counts)[i];
}

void print_counts(const char *of, const Counts &b)
{
	printf("# %s: hits %lu accepted %lu rejected %lu misses %lu samples %lu signals %lu "
	       "sigtraps %lu hups %lu lost %lu extra %lu\n",
	       of, b.hits, b.accepted, b.rejected, b.misses, b.samples, b.signals, b.traps, b.hups,
	       b.lost, b.extra);
}
