// SPDX-License-Identifier: GPL-2.0
#include "stress/scene.h"

#include <unistd.h>

#include <algorithm>

#include "stress/machine.h"

static struct alignas(4096) {
	volatile uint64_t word;
} page;
volatile uint64_t &word = page.word;

NOINLINE_NOCLONE void store(uint64_t value, volatile uint64_t *to)
{
	asm volatile("" : : "r"(value));
	*to = value;
}

perf_event_attr with_value_in_sample(perf_event_attr attr)
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
		attr = with_value_in_sample(attr);
	attr.wakeup_events = part.wakes;
	attr.inherit = part.actor->is(INHERITED);
	return with_sigtrap(attr, part.effects & TRAPS);
}

Scene::Scene(const Part &part, perf_event_attr attr)
	: part(part)
	, unpredictable((part.meddling ? part.meddling->unpredictable : 0) |
			(machine.merges_signals ? uint32_t{ MERGES_SIGNALS } : 0))
	, kernel(part.actor->is(IN_KERNEL))
	, attr(complete(part, attr))
	, signals({ SETSIG, SIGIO, SIGTRAP })
	, event(this->attr)
	, first(part.seed, part.mask, by_link() ? COOKIE : 0, kernel)
	, second(part.seed, part.mask, COOKIE + 1, kernel)
{
	if (part.effects & SAMPLES && !(unpredictable & UNMAPS))
		ring.emplace(event);
	if (part.effects & SIGNALS)
		event.async(SETSIG, gettid());
	if (by_link())
		link = first.link(event);
	else
		event.must_attach(first);
	blocked = set_of({ SETSIG, SIGTRAP });
}

void Scene::finish_batch(bool blocked)
{
	if (part.blocks_signals) {
		uint64_t now = due(), all = now - due_before;

		/* SIGTRAP is not queued: while it is blocked, at most one is pending. */
		traps_due += blocked ? std::min<uint64_t>(all, 1) : all;
		due_before = now;
	}
	if (part.effects & SIGNALS && !(unpredictable & SILENCES))
		wait_for_signals();
	/* poll(2) must be ready if and only if there are new samples. */
	if (ring && part.wakes && !part.overfills_ring && !(unpredictable & DETACHES && kernel)) {
		const uint64_t now = due();

		if (ring->poll_ready() != (now > polled))
			error("expected poll() %s, got %s: %lu new samples",
			      now > polled ? "ready" : "not ready",
			      now > polled ? "not ready" : "ready", now - polled);
		polled = now;
	}
	if (!part.overfills_ring)
		drain();
}

void Scene::wait_for_signals()
{
	const bool merged = unpredictable & MERGES_SIGNALS;
	const uint64_t accepted_now = due();
	const uint64_t least = !merged ? accepted_now : last_caught + (accepted_now > last_due);

	if (merged || unpredictable & MOVES_SIGNALS || part.actor->is(INHERITED))
		for (int i = 0; i < 5000 && caught() < least; i++)
			usleep(1000);
	if (merged)
		expect_at_least("signals", least, caught());
	last_due = accepted_now;
	last_caught = caught();
}

void Scene::drain()
{
	if (!ring)
		return;
	ring->forget();
	ring->drain();
	samples += ring->samples();
	samples_sum += ring->sum();
	if (part.overfills_ring)
		samples += ring->lost();
	else
		expect("PERF_RECORD_LOST records", 0, ring->records(PERF_RECORD_LOST));
}

void Scene::close(const std::function<void(uint64_t)> &hit)
{
	if (part.overfills_ring && ring) {
		/* The kernel writes PERF_RECORD_LOST only before the next sample. */
		drain();
		accept_all_from_now_on();
		count_hit(++value);
		hit(value);
		finish_batch(false);
	}
	drain();
	event.disable();

	Counts &counts = slot->counts;
	const uint64_t counted = event.count();
	const uint64_t misses = first.misses() + second.misses();
	const uint64_t runs = first.globals()->runs + second.globals()->runs;
	const uint64_t program_accepted = first.accepted() + second.accepted();
	const bool only_program_knows =
		unpredictable & MISSES_HITS || kernel; /* the accepted hits */
	const uint64_t delivered = unpredictable & DETACHES ? tried - misses
				   : only_program_knows	    ? program_accepted
							    : accepted;
	const uint64_t signalled = delivered + (machine.misses_deliver ? misses : 0);

	if (unpredictable & MISSES_HITS)
		expect_at_most("hits counted", tried, counted);
	else
		expect("hits counted", tried, counted);
	if (unpredictable & DETACHES)
		expect_at_most("runs of the program", counted, runs + misses);
	else
		expect("runs and misses of the program", counted, runs + misses);
	if (!kernel)
		expect("misses of hits in user mode", 0, misses);
	if (part.stats)
		expect("runs in bpf_prog_info", runs,
		       info_of_program(first.prog_fd()).run_cnt +
			       info_of_program(second.prog_fd()).run_cnt);
	if (!(unpredictable & DETACHES)) {
		if (only_program_knows)
			expect_at_most("hits that the program accepted", accepted,
				       program_accepted);
		else
			expect("hits that the program accepted", accepted, program_accepted);
		if (kernel && !(unpredictable & MISSES_HITS) && program_accepted <= accepted)
			expect_at_most("accepted hits without a run", misses,
				       accepted - program_accepted);
	}
	expect("runs that saw a wrong cookie", 0,
	       first.globals()->wrong_cookies + second.globals()->wrong_cookies);

	check(SAMPLES, UNMAPS, "samples", delivered, samples);
	if (ring && !part.overfills_ring && !kernel)
		expect_same("values of the samples",
			    unpredictable & MISSES_HITS ? first.globals()->accepted_sum : sum,
			    samples_sum);
	check(SIGNALS, SILENCES | MERGES_SIGNALS, "signals", signalled, caught());
	expect("SIGIOs, which mean a full signal queue", 0, Signals::count(SIGIO));

	const uint64_t traps = Signals::count(SIGTRAP) + slot->from_children;

	check(TRAPS, 0, "SIGTRAPs", part.blocks_signals ? traps_due : signalled, traps);

	counts.hits = counted;
	counts.accepted = delivered;
	counts.misses = misses;
	counts.rejected = counted > delivered + misses ? counted - delivered - misses : 0;
	counts.samples = samples;
	counts.signals = caught();
	counts.hups = Signals::count(SETSIG, POLL_HUP);
	counts.traps = traps;
	slot->closed = true;
}

void Scene::compare_signals()
{
	if (part.effects & SIGNALS && !(unpredictable & MERGES_SIGNALS) && caught() != due())
		error("expected %lu signals, got %lu: right after hit %lu", due(), caught(), tried);

	/* SIGTRAPs of earlier batches that were blocked were sent only once. */
	const uint64_t traps = part.blocks_signals ? traps_due + due() - due_before : due();

	if (part.effects & TRAPS && Signals::count(SIGTRAP) != traps)
		error("expected %lu SIGTRAPs, got %lu: right after hit %lu", traps,
		      Signals::count(SIGTRAP), tried);
}

void Scene::check(uint32_t effect, uint32_t unless, const char *what, uint64_t due, uint64_t actual)
{
	if (!(part.effects & effect))
		expect(what, 0, actual);
	else if (unpredictable & unless)
		expect_at_most(what, due, actual);
	else
		expect(what, due, actual);
}
