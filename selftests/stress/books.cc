// SPDX-License-Identifier: GPL-2.0
#include "stress/books.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "lib/fail.h"

Shared *shared;
Slot *slot;

void say(const char *format, ...)
{
	va_list args;

	if (slot->difference[0])
		return;
	va_start(args, format);
	vsnprintf(slot->difference, sizeof(slot->difference), format, args);
	va_end(args);
}

[[noreturn]] static void give_up(const char *what, const char *why)
{
	if (slot)
		say("gave up: %s%s%s", what, *why ? ": " : "", why);
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

void expect(const char *things, uint64_t expected, uint64_t came)
{
	if (came == expected)
		return;
	slot->books.lost += came < expected ? expected - came : 0;
	slot->books.extra += came > expected ? came - expected : 0;
	say("expected %s, got %lu", quantity(std::to_string(expected), things).c_str(), came);
}

void expect_same(const char *things, uint64_t expected, uint64_t came)
{
	if (came != expected)
		say("expected a sum of %#lx, got %#lx: %s", expected, came, things);
}

void expect_at_most(const char *things, uint64_t most, uint64_t came)
{
	expect(things, std::min(most, came), came);
}

void expect_at_least(const char *things, uint64_t least, uint64_t came)
{
	expect(things, std::max(least, came), came);
}

void add(Books &sum, const Books &books)
{
	static_assert(sizeof(books) % sizeof(uint64_t) == 0, "nothing but numbers");
	for (size_t i = 0; i < sizeof(books) / sizeof(uint64_t); i++)
		reinterpret_cast<uint64_t *>(&sum)[i] +=
			reinterpret_cast<const uint64_t *>(&books)[i];
}

void print_books(const char *of, const Books &b)
{
	printf("# %s: hits %lu accepted %lu rejected %lu misses %lu samples %lu signals %lu "
	       "sigtraps %lu hups %lu lost %lu extra %lu\n",
	       of, b.hits, b.accepted, b.rejected, b.misses, b.samples, b.signals, b.traps, b.hups,
	       b.lost, b.extra);
}
