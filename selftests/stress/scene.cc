// SPDX-License-Identifier: GPL-2.0
#include "stress/scene.h"

#include <unistd.h>

#include <algorithm>

#include "stress/machine.h"

static struct alignas(4096) {
	volatile uint64_t word;
} page;
volatile uint64_t &word = page.word;

KEPT_APART void store(uint64_t value, volatile uint64_t *to)
{
	asm volatile("" : : "r"(value));
	*to = value;
}

perf_event_attr saying_value(perf_event_attr attr)
{
	attr.sample_type = PERF_SAMPLE_REGS_USER;
	attr.sample_regs_user = FIRST_ARGUMENT;
	return attr;
}

static perf_event_attr complete(const Part &part, perf_event_attr attr)
{
	if (part.actor->is(IN_KERNEL))
		attr.exclude_kernel = 0;
	else
		attr = saying_value(attr);
	attr.wakeup_events = part.wakes;
	attr.inherit = part.actor->is(INHERITED);
	return with_sigtrap(attr, part.effects & TRAPS);
}

Scene::Scene(const Part &part, perf_event_attr attr)
	: part(part)
	, takes((part.meddling ? part.meddling->takes : 0) |
		(machine.merges_signals ? uint32_t{ MERGES_SIGNALS } : 0))
	, kernel(part.actor->is(IN_KERNEL))
	, attr(complete(part, attr))
	, signals({ SETSIG, SIGIO, SIGTRAP })
	, event(this->attr)
	, first(part.seed, part.mask, by_link() ? COOKIE : 0, kernel)
	, second(part.seed, part.mask, COOKIE + 1, kernel)
{
	if (part.effects & SAMPLES && !(takes & UNMAPS))
		ring.emplace(event);
	if (part.effects & SIGNALS)
		event.async(SETSIG, gettid());
	if (by_link())
		link = first.link(event);
	else
		event.must_attach(first);
	blocked = set_of({ SETSIG, SIGTRAP });
}

void Scene::settle(bool blocked)
{
	if (part.blocks) {
		uint64_t now = due(), all = now - due_before;

		/* SIGTRAP is not queued: while it is blocked, at most one is pending. */
		traps_due += blocked ? std::min<uint64_t>(all, 1) : all;
		due_before = now;
	}
	if (part.effects & SIGNALS && !(takes & SILENCES))
		wait_for_signals();
	/* poll(2) must be ready if and only if there are new samples. */
	if (ring && part.wakes && !part.fills && !(takes & DETACHES && kernel)) {
		const uint64_t now = due();

		if (ring->poll_ready() != (now > polled))
			say("expected poll() %s, got %s: %lu new samples",
			    now > polled ? "ready" : "not ready",
			    now > polled ? "not ready" : "ready", now - polled);
		polled = now;
	}
	if (!part.fills)
		drain();
}

void Scene::wait_for_signals()
{
	const bool merged = takes & MERGES_SIGNALS;
	const uint64_t accepted_now = due();
	const uint64_t least =
		!merged ? accepted_now : caught_settled + (accepted_now > due_settled);

	if (merged || takes & MOVES_SIGNALS || part.actor->is(INHERITED))
		for (int i = 0; i < 5000 && caught() < least; i++)
			usleep(1000);
	if (merged)
		expect_at_least("signals", least, caught());
	due_settled = accepted_now;
	caught_settled = caught();
}

void Scene::drain()
{
	if (!ring)
		return;
	ring->forget();
	ring->drain();
	samples += ring->samples();
	samples_sum += ring->sum();
	if (part.fills)
		samples += ring->lost();
	else
		expect("PERF_RECORD_LOST records", 0, ring->records(PERF_RECORD_LOST));
}

void Scene::close(const std::function<void(uint64_t)> &hit)
{
	if (part.fills && ring) {
		/* The kernel writes PERF_RECORD_LOST only before the next sample. */
		drain();
		accept_all_from_now_on();
		book(++value);
		hit(value);
		settle(false);
	}
	drain();
	event.disable();

	Books &books = slot->books;
	const uint64_t counted = event.count();
	const uint64_t misses = first.misses() + second.misses();
	const uint64_t runs = first.globals()->runs + second.globals()->runs;
	const uint64_t said = first.accepted() + second.accepted();
	const bool only_program = takes & MISSES_HITS || kernel; /* knows the accepted hits */
	const uint64_t delivered = takes & DETACHES ? tried - misses
				   : only_program   ? said
						    : accepted;
	const uint64_t signalled = delivered + (machine.misses_deliver ? misses : 0);

	if (takes & MISSES_HITS)
		expect_at_most("hits counted", tried, counted);
	else
		expect("hits counted", tried, counted);
	if (takes & DETACHES)
		expect_at_most("runs of the program", counted, runs + misses);
	else
		expect("runs and misses of the program", counted, runs + misses);
	if (!kernel)
		expect("misses of hits in user mode", 0, misses);
	if (part.stats)
		expect("runs in bpf_prog_info", runs,
		       info_of_program(first.prog_fd()).run_cnt +
			       info_of_program(second.prog_fd()).run_cnt);
	if (!(takes & DETACHES)) {
		if (only_program)
			expect_at_most("hits that the program accepted", accepted, said);
		else
			expect("hits that the program accepted", accepted, said);
		if (kernel && !(takes & MISSES_HITS) && said <= accepted)
			expect_at_most("accepted hits without a run", misses, accepted - said);
	}
	expect("runs that saw a wrong cookie", 0,
	       first.globals()->wrong_cookies + second.globals()->wrong_cookies);

	check(SAMPLES, UNMAPS, "samples", delivered, samples);
	if (ring && !part.fills && !kernel)
		expect_same("values of the samples",
			    takes & MISSES_HITS ? first.globals()->accepted_sum : sum, samples_sum);
	check(SIGNALS, SILENCES | MERGES_SIGNALS, "signals", signalled, caught());
	expect("SIGIOs, which mean a full signal queue", 0, Signals::count(SIGIO));

	const uint64_t traps = Signals::count(SIGTRAP) + slot->from_children;

	check(TRAPS, 0, "SIGTRAPs", part.blocks ? traps_due : signalled, traps);

	books.hits = counted;
	books.accepted = delivered;
	books.misses = misses;
	books.rejected = counted > delivered + misses ? counted - delivered - misses : 0;
	books.samples = samples;
	books.signals = caught();
	books.hups = Signals::count(SETSIG, POLL_HUP);
	books.traps = traps;
	slot->closed = true;
}

void Scene::compare_signals()
{
	if (part.effects & SIGNALS && !(takes & MERGES_SIGNALS) && caught() != due())
		say("expected %lu signals, got %lu: right after hit %lu", due(), caught(), tried);

	/* SIGTRAPs of earlier batches that were blocked were sent only once. */
	const uint64_t traps = part.blocks ? traps_due + due() - due_before : due();

	if (part.effects & TRAPS && Signals::count(SIGTRAP) != traps)
		say("expected %lu SIGTRAPs, got %lu: right after hit %lu", traps,
		    Signals::count(SIGTRAP), tried);
}

void Scene::check(uint32_t effect, uint32_t unless, const char *what, uint64_t due, uint64_t came)
{
	if (!(part.effects & effect))
		expect(what, 0, came);
	else if (takes & unless)
		expect_at_most(what, due, came);
	else
		expect(what, due, came);
}
