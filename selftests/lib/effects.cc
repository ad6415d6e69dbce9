// SPDX-License-Identifier: GPL-2.0
#include "lib/effects.h"

#include <optional>
#include <utility>

#include "lib/event.h"
#include "lib/filter.h"
#include "lib/ring.h"
#include "lib/signals.h"

constinit const Effect effects[EFFECTS] = {
	{
		.id = "sample",
		.title = "ring-buffer sample",
		.setup = { .ring = true },
		.seen = &Observed::samples,
	},
	{
		.id = "wakeup",
		.title = "wakeup / poll",
		.setup = { .ring = true },
		.seen = &Observed::polls,
	},
	{
		.id = "sigio",
		.title = "SIGIO (O_ASYNC)",
		.setup = { .async = Async::TO_PROCESS },
		.seen = &Observed::sigio,
	},
	{
		.id = "setsig",
		.title = "F_SETSIG signal to a thread",
		.setup = { .async = Async::TO_THREAD },
		.seen = &Observed::setsig,
	},
	{
		.id = "sigtrap",
		.title = "SIGTRAP (attr.sigtrap)",
		.setup = { .sigtrap = true },
		.seen = &Observed::sigtrap,
	},
	{
		.id = "limit",
		.title = "event_limit (IOC_REFRESH)",
		.setup = { .limit = true },
		.seen = &Observed::limit_used,
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
	},
};

const char *why_not_hit()
{
	Fd fd = open_event(breakpoint(hit));

	if (!fd.valid())
		return "";

	Event event(std::move(fd));

	event.enable();
	hit_times(HITS);
	return event.count() ? "" : "breakpoints can be opened but are not hit";
}

Observed observe(const Setup &setup, Verdict verdict, const Subject &subject)
{
	Observed seen = {};
	std::optional<Filter> loaded; /* only if needed: the kernel may have no BPF */
	Filter *filter = nullptr;
	uint64_t runs = 0;
	Signals signals({ SIGIO, SIGTRAP, SETSIG });
	Event event(with_sigtrap(subject.attr, setup.sigtrap), subject.pid, subject.cpu);
	std::optional<Ring> ring;
	Fd link;

	if (setup.ring)
		ring.emplace(event);
	if (setup.async == Async::TO_PROCESS)
		event.async();
	else if (setup.async == Async::TO_THREAD)
		event.async(SETSIG, gettid());

	if (verdict.attached) {
		filter = subject.filter ? subject.filter : &loaded.emplace();
		runs = filter->runs();
		filter->returns(verdict.returns);
		if (subject.halfway && filter->can_link())
			link = filter->link(event);
		else
			event.must_attach(*filter);
	}

	if (setup.limit)
		event.must_refresh(LIMIT);
	else
		event.enable();

	for (uint64_t i = 0; i < HITS; i++) {
		if (i == HITS / 2 && subject.halfway)
			subject.halfway(event, link);
		subject.hit();
		/*
		 * The kernel sets rb->poll when it raises the wakeup of a sample, so this shows
		 * whether a task that sleeps in poll() would wake up and find the event ready.
		 */
		if (ring)
			seen.polls += ring->poll_ready();
	}

	seen.count = event.count();
	seen.sigio = Signals::count(SIGIO);
	seen.setsig = Signals::count(SETSIG);
	seen.hups = Signals::count(SETSIG, POLL_HUP);
	seen.sigtrap = Signals::count(SIGTRAP, TRAP_PERF);
	if (ring) {
		ring->drain();
		seen.samples = ring->samples();
	}
	/* Read this last: a page fault in the code above can hit. */
	seen.runs = filter ? filter->runs() - runs : 0;

	/* Accepted hits use up the rest of the limit, which shows how much was used before. */
	if (setup.limit) {
		if (filter)
			filter->returns(1);
		for (uint64_t i = 0; i < LIMIT; i++)
			subject.hit();
		seen.limit_used = LIMIT - (event.count() - seen.count);
		seen.stopped = event.count() == seen.count;
	}
	event.disable();
	return seen;
}
