// SPDX-License-Identifier: GPL-2.0
/* C1, C2 and C3: the side effects of a hit, separately and together. */
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/common.h"

static void is_rejected(const Effect &effect)
{
	Observed got = observe(effect.setup, rejects);

	EXPECT_EQ(got.count, HITS, "hits counted");
	EXPECT_EQ(got.runs, HITS, "runs of the program");
	EXPECT_VALUE(got.*effect.seen, 0, effect.title);
}

static void is_accepted(const Effect &effect)
{
	Observed bare = observe(effect.setup, no_program);

	EXPECT_EQ(bare.count, effect.accepted_count, "hits counted without a program");
	EXPECT_VALUE(bare.*effect.seen, effect.accepted_seen, effect.title);

	for (uint32_t verdict : { 1u, 2u, ~0u }) {
		Observed got = observe(effect.setup, { true, verdict });

		EXPECT_EQ(got.count, bare.count, "hits counted, as many as without a program");
		EXPECT_EQ(got.runs, effect.accepted_count, "runs of the program");
		EXPECT_VALUE(got.*effect.seen, bare.*effect.seen, effect.title);
	}
}

static const bool added = [] {
	for (const Effect &effect : effects) {
		std::string name = std::string("effects.") + effect.id;
		std::string title = std::string(effect.title) + ": ";

		add_test({ name + ".rejected", "C1", title + effect.when_not + " for rejected hits",
			   [&effect] { is_rejected(effect); } });
		add_test({ name + ".accepted", "C2",
			   title + effect.when_seen + " for accepted hits, as without a program",
			   [&effect] { is_accepted(effect); } });
	}
	return true;
}();

TEST("effects.no_program", "C11",
     "without a program, a hit has all its side effects, even on a kernel without BPF")
{
	for (const Effect &effect : effects) {
		/* effects.sigtrap.* report the skip and its reason. */
		if (effect.setup.sigtrap && !has_sigtrap())
			continue;

		Observed got = observe(effect.setup, no_program);

		EXPECT_EQ(got.count, effect.accepted_count, "hits counted");
		EXPECT_VALUE(got.*effect.seen, effect.accepted_seen, effect.title);
	}
}

TEST("effects.count", "C3", "every hit is counted, whatever the program returns")
{
	for (Verdict verdict : { no_program, rejects, Verdict{ true, 1 } })
		EXPECT_EQ(observe({}, verdict).count, HITS, "hits counted");
}

TEST("effects.by_register", "C1", "only hits with the wanted function argument are delivered")
{
	constexpr uint64_t WANTED = 7, KINDS = 10, CALLS = 100;
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));
	Ring ring(event);
	uint64_t wrong = 0;

	event.async(SETSIG, gettid());
	filter.returns_if(1, FILTER_ARGUMENT, WANTED);
	event.enable(filter);

	for (uint64_t i = 0; i < CALLS; i++) {
		uint64_t before = Signals::count(SETSIG);

		hit(i % KINDS);
		wrong += Signals::count(SETSIG) - before != (i % KINDS == WANTED);
	}
	ring.drain();
	expect_hits(event, filter, CALLS);
	EXPECT_EQ(ring.samples(), CALLS / KINDS, "samples");
	EXPECT_EQ(wrong, 0, "calls with a wrong number of signals");
}

TEST("effects.limit_of_accepted", "C1",
     "with a limit of 3, the third accepted hit uses up the limit")
{
	constexpr uint64_t CALLS = 40, THIRD = 30;
	Filter filter;
	Event event(breakpoint(hit));

	event.must_attach(filter);
	event.must_refresh(3);

	/* Hits 10, 20 and 30 are accepted, and all others are rejected. */
	for (uint64_t i = 1; i <= CALLS; i++) {
		filter.returns(i % 10 == 0);
		hit(i);
	}
	EXPECT_EQ(event.count(), THIRD, "hits counted until the limit");
	EXPECT_EQ(filter.runs(), THIRD, "runs of the program");
}

TEST("effects.limit_revives", "C10", "REFRESH re-enables a breakpoint that has used up its limit")
{
	Filter filter;
	Event event(breakpoint(hit));

	filter.returns(1);
	event.must_attach(filter);
	for (uint64_t round = 1; round <= 3; round++) {
		event.must_refresh(LIMIT);
		for (uint64_t i = 0; i < HITS; i++)
			hit(i);
		EXPECT_EQ(event.count(), round * LIMIT, "hits counted after each REFRESH");
	}
}

/* All side effects that an event can have at once. */
static constexpr Setup everything = {
	.ring = true,
	.async = Async::TO_PROCESS,
	.sigtrap = true,
	.limit = true,
};

TEST("effects.combined.rejected", "C1",
     "with all side effects enabled at once, a rejected hit has none of them")
{
	Observed got = observe(everything, rejects);

	EXPECT_EQ(got.count, HITS, "hits counted");
	EXPECT_EQ(got.runs, HITS, "runs of the program");
	EXPECT_EQ(got.sigtrap, 0, "SIGTRAPs");
	EXPECT_EQ(got.sigio, 0, "SIGIOs");
	EXPECT_EQ(got.samples, 0, "samples");
	EXPECT_EQ(got.polls, 0, "times that poll() was ready");
	EXPECT_EQ(got.limit_used, 0, "hits taken from the limit");
}

TEST("effects.combined.accepted", "C2",
     "with all side effects enabled at once, an accepted hit has every one of them")
{
	for (Verdict verdict : { no_program, Verdict{ true, 1 } }) {
		Observed got = observe(everything, verdict);

		EXPECT_EQ(got.count, LIMIT, "hits counted");
		EXPECT_EQ(got.runs, verdict.attached ? LIMIT : 0, "runs of the program");
		EXPECT_EQ(got.sigtrap, LIMIT, "SIGTRAPs");
		EXPECT_EQ(got.sigio, LIMIT, "SIGIOs");
		EXPECT_EQ(got.samples, LIMIT, "samples");
		EXPECT_EQ(got.polls, LIMIT, "times that poll() was ready");
		EXPECT_EQ(got.limit_used, LIMIT, "hits taken from the limit");
	}
}

/*
 * A process that sleeps in poll(2) on an event. With O_ASYNC an overflow wakes it up even without a
 * sample. It then finds nothing and sleeps again inside poll(2), which shows only in its number of
 * voluntary context switches.
 */
class Sleeper {
public:
	explicit Sleeper(const Event &event)
		: child_([&] {
			pollfd poller = { event.fd(), POLLIN, 0 };

			while (poll(&poller, 1, -1) >= 0)
				;
			return 1;
		})
	{
		wait_until_asleep();
	}

	uint64_t wait_until_asleep() { return ::wait_until_asleep(child_.pid()); }

private:
	Child child_;
};

static uint64_t wakeups_of_a_sleeper(const perf_event_attr &attr, bool async, Verdict verdict)
{
	Filter filter;
	Signals signals({ SIGIO });
	Event event(attr);
	Ring ring(event);
	uint64_t wakeups = 0;

	if (async)
		event.async();
	filter.returns(verdict.returns);
	if (verdict.attached)
		event.must_attach(filter);

	Sleeper sleeper(event);
	uint64_t before = sleeper.wait_until_asleep();

	event.enable();
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);

		uint64_t after = sleeper.wait_until_asleep();

		wakeups += after - before;
		before = after;
	}
	return wakeups;
}

TEST("effects.sleeper.rejected", "C1",
     "a task that sleeps in poll() on an O_ASYNC event does not wake up for rejected hits")
{
	EXPECT_EQ(wakeups_of_a_sleeper(breakpoint(hit), true, rejects), 0,
		  "wakeups of the sleeper");
}

TEST("effects.sleeper.accepted", "C2",
     "a task that sleeps in poll() wakes up once for each accepted hit")
{
	EXPECT_EQ(wakeups_of_a_sleeper(breakpoint(hit), true, no_program), HITS,
		  "wakeups without a program");
	EXPECT_EQ(wakeups_of_a_sleeper(breakpoint(hit), true, { true, 1 }), HITS,
		  "wakeups with a program");
}

TEST("effects.sleeper.wakeup_events", "C2",
     "with wakeup_events of N, a task that sleeps in poll() wakes up for every Nth accepted hit")
{
	constexpr uint64_t WAKE_AFTER = 4;
	perf_event_attr attr = breakpoint(hit);

	attr.wakeup_events = WAKE_AFTER;
	EXPECT_EQ(wakeups_of_a_sleeper(attr, false, no_program), HITS / WAKE_AFTER,
		  "wakeups without a program");
	EXPECT_EQ(wakeups_of_a_sleeper(attr, false, { true, 1 }), HITS / WAKE_AFTER,
		  "wakeups with a program");
}
