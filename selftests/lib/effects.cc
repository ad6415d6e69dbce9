// SPDX-License-Identifier: GPL-2.0
#include "lib/effects.h"

#include <optional>

#include "lib/perf.h"

constinit const Effect effects[EFFECTS] = {
	{
		.id = "sample",
		.title = "ring-buffer sample",
		.setup = { .ring = true },
		.seen = &Observed::samples,
		.accepted_count = HITS,
		.accepted_seen = HITS,
		.when_seen = "delivered",
		.when_not = "suppressed",
	},
	{
		.id = "wakeup",
		.title = "wakeup / poll",
		.setup = { .ring = true },
		.seen = &Observed::polls,
		.accepted_count = HITS,
		.accepted_seen = HITS,
		.when_seen = "delivered",
		.when_not = "suppressed",
	},
	{
		.id = "sigio",
		.title = "SIGIO (O_ASYNC)",
		.setup = { .async = Async::TO_PROCESS },
		.seen = &Observed::sigio,
		.accepted_count = HITS,
		.accepted_seen = HITS,
		.when_seen = "delivered",
		.when_not = "suppressed",
	},
	{
		.id = "setsig",
		.title = "F_SETSIG signal to a thread",
		.setup = { .async = Async::TO_THREAD },
		.seen = &Observed::setsig,
		.accepted_count = HITS,
		.accepted_seen = HITS,
		.when_seen = "delivered",
		.when_not = "suppressed",
	},
	{
		.id = "sigtrap",
		.title = "SIGTRAP (attr.sigtrap)",
		.setup = { .sigtrap = true },
		.seen = &Observed::sigtrap,
		.accepted_count = HITS,
		.accepted_seen = HITS,
		.when_seen = "delivered",
		.when_not = "suppressed",
	},
	{
		.id = "limit",
		.title = "event_limit (IOC_REFRESH)",
		.setup = { .limit = true },
		.seen = &Observed::taken,
		.accepted_count = LIMIT,
		.accepted_seen = LIMIT,
		.when_seen = "consumed",
		.when_not = "untouched",
	},
	{
		.id = "hup",
		.title = "POLL_HUP at the limit / auto-disable",
		.setup = { .async = Async::TO_THREAD, .limit = true },
		.seen = &Observed::hups,
		.accepted_count = LIMIT,
		.accepted_seen = 1,
		.when_seen = "delivered",
		.when_not = "suppressed",
	},
};

#ifdef __clang__
#define KEPT_APART __attribute__((noinline))
#else
#define KEPT_APART __attribute__((noipa))
#endif

/* Different bodies, so that no linker folds the two into one address. */
KEPT_APART void hit(uint64_t value)
{
	asm volatile("" : : "r"(value), "i"(1) : "memory");
}

KEPT_APART void hit_other(uint64_t value)
{
	asm volatile("nop" : : "r"(value), "i"(2) : "memory");
}

int setsig_signal()
{
	return SIGRTMIN + 1;
}

Observed observe(const Setup &setup, Verdict verdict)
{
	const int rt = setsig_signal();
	Observed seen = {};
	std::optional<Filter> filter; /* without a program, a kernel without BPF will do */
	Signals signals({ SIGIO, SIGTRAP, rt });

	perf_event_attr attr = breakpoint(hit);

	attr.sigtrap = setup.sigtrap;
	attr.remove_on_exec = setup.sigtrap; /* sigtrap asks for it */

	Event event(attr);
	std::optional<Ring> ring;

	if (setup.ring)
		ring.emplace(event);
	if (setup.async == Async::TO_PROCESS)
		event.async();
	else if (setup.async == Async::TO_THREAD)
		event.async(rt, gettid());

	if (verdict.attached) {
		filter.emplace();
		filter->returns(verdict.returns);
		event.must_attach(*filter);
	}

	if (setup.limit)
		event.must_refresh(LIMIT);
	else
		event.enable();

	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		/*
		 * rb->poll is set as the sample's wakeup is raised, so this tells whether a task
		 * that waits for the buffer would be woken, and found it ready.
		 */
		if (ring)
			seen.polls += ring->poll_ready();
	}

	seen.count = event.count();
	seen.runs = filter ? filter->runs() : 0;
	seen.sigio = Signals::count(SIGIO);
	seen.setsig = Signals::count(rt);
	seen.hups = Signals::count(rt, POLL_HUP);
	seen.sigtrap = Signals::count(SIGTRAP, TRAP_PERF);
	if (ring) {
		ring->drain();
		seen.samples = ring->samples();
	}

	/* Hits that are accepted use the limit up: what they cannot take was taken before. */
	if (setup.limit) {
		if (filter)
			filter->returns(1);
		for (uint64_t i = 0; i < LIMIT; i++)
			hit(i);
		seen.taken = LIMIT - (event.count() - seen.count);
	}
	event.disable();
	return seen;
}
