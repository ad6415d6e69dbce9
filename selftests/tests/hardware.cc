// SPDX-License-Identifier: GPL-2.0
/*
 * Events of a hardware PMU, which differ from software events: a group moves to their context, they
 * overflow in NMIs, and their registers may be a copy. The PMU is module/perf_bpf_pmu.c, whose
 * counters a test can hit at any time on any CPU.
 */
#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "harness/race.h"
#include "lib/clock.h"
#include "lib/gate.h"
#include "lib/pmu.h"
#include "lib/program.h"
#include "lib/sysctl.h"
#include "tests/callchain.h"
#include "tests/common.h"

/*
 * attr.config of the PMU. COPY: the registers are those with which the task left user mode. BATCH:
 * the driver collects BATCHED overflows. CALLCHAIN: it takes the callchain before the program runs.
 * TRACE: it writes a page of the AUX area at each overflow. CUTS: it reports that the trace is
 * incomplete.
 */
constexpr uint64_t COPY = 1, BATCH = 4, CALLCHAIN = 8, TRACE = 16, CUTS = 32;
constexpr uint64_t BATCHED = 4;

static std::vector<Context> contexts_to_try()
{
	hardware(); /* skips the test without the PMU */
	return usable_contexts();
}

/* Moves the test to the first CPU, and returns another one. */
static int other_cpu()
{
	std::vector<int> cpus = usable_cpus();

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	run_on(cpus[0]);
	return cpus[1];
}

/*
 * The kernel removes the group from the task's context and adds it again under the hardware PMU, a
 * sibling before its leader. The task is busy on another CPU, so that each step is an IPI.
 */
TEST("hardware.group.moved", "C8",
     "a running software group keeps counting when a hardware event joins and moves it")
{
	constexpr int TRIES = 5;
	struct Turns {
		std::atomic<int> wanted, made;
	};
	Hits hits(IRQ);
	auto &turns = shared_with_children<Turns>();
	int cpu = other_cpu();
	Child busy([&] {
		run_on(cpu);
		for (int turn = 0;; turns.made = ++turn) {
			while (turns.wanted == turn)
				;
			hits.make(HITS);
		}
		return 0;
	});
	perf_event_attr attr = hardware();

	perf_event_attr clock = software(PERF_COUNT_SW_TASK_CLOCK);

	attr.sample_period = 0;
	attr.disabled = clock.disabled = 0;
	for (int turn = 1; turn <= TRIES; turn++) {
		Event leader(clock, busy.pid());
		Event sibling(clock, busy.pid(), -1, &leader);
		Event moves(attr, busy.pid(), -1, &leader);
		uint64_t before[] = { leader.count(), sibling.count() };

		turns.wanted = turn;
		while (turns.made != turn)
			usleep(1000);
		EXPECT_EQ(moves.count(), HITS, "hits counted by the hardware event");
		EXPECT_GT(leader.count(), before[0], "ns counted by the leader");
		EXPECT_GT(sibling.count(), before[1], "ns counted by the sibling");
	}
}

/* The context in which an overflow occurs, and which registers it has. */
static const struct Source {
	const char *name, *title;
	Context context;
	uint64_t config;
} sources[] = {
	{ "nmi", "an NMI", NMI, 0 },
	{ "irq", "a hard interrupt", IRQ, 0 },
	{ "task", "task context with interrupts off", TASK, 0 },
	{ "nmi_copy", "an NMI with a copy of the user-mode registers", NMI, COPY },
	{ "irq_copy", "a hard interrupt with a copy of the user-mode registers", IRQ, COPY },
	{ "task_copy", "task context with a copy of the user-mode registers", TASK, COPY },
};

static perf_event_attr hardware(const Source &source)
{
	perf_event_attr attr = hardware(source.config);

	/* The copied registers are those of user mode, so the hit counts as one in user mode. */
	attr.exclude_kernel = source.config == COPY;
	return attr;
}

static void check_effects(const Source &source, bool accept)
{
	Hits hits(source.context);
	uint64_t delivered = accept ? HITS : 0, polls = 0;
	Filter filter(Program::LOOKS);
	Signals signals({ SETSIG });
	Event event(hardware(source));
	Ring ring(event);

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		hits.make(1);
		polls += ring.poll_ready();
	}
	event.disable();
	ring.drain();
	expect_hits(event, filter, HITS);
	EXPECT_VALUE(filter.snapshot().ip >> 63, source.config != COPY,
		     "the registers are those of kernel mode");
	EXPECT_EQ(ring.samples(), delivered, "samples");
	EXPECT_EQ(polls, delivered, "polls that found the event ready");
	EXPECT_EQ(Signals::count(SETSIG), delivered, "signals");
}

static void check_limit(const Source &source, bool accept)
{
	Hits hits(source.context);
	Filter filter;
	Signals signals({ SETSIG });
	Event event(hardware(source));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.must_attach(filter);
	event.must_refresh(LIMIT);
	for (uint64_t i = 0; i < HITS; i++)
		hits.make(1);
	expect_hits(event, filter, accept ? LIMIT : HITS);
	EXPECT_EQ(Signals::count(SETSIG), accept ? LIMIT : 0, "signals");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), accept, "POLL_HUPs");
}

static void check_sigtrap(const Source &source, bool accept)
{
	Hits hits(source.context);
	perf_event_attr attr = hardware(source);
	Filter filter;
	Signals signals({ SIGTRAP });

	attr = with_sigtrap(attr);

	Event event(attr);

	filter.returns(accept);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++)
		hits.make(1);
	expect_hits(event, filter, HITS);
	EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), accept ? HITS : 0, "SIGTRAPs");
}

/* A leader and its sibling overflow in one interrupt. One is accepted, the other rejected. */
static void check_group(const Source &source, bool accept)
{
	Hits hits(source.context);
	perf_event_attr attr = hardware(source);
	Filter filter, other;
	Signals signals({ SETSIG });
	Event leader(attr);

	attr.disabled = 0;

	Event sibling(attr, 0, -1, &leader);
	Ring leaders(leader), siblings(sibling);

	filter.returns(accept);
	other.returns(!accept);
	leader.async(SETSIG, gettid());
	leader.must_attach(filter);
	sibling.must_attach(other);
	leader.enable();
	for (uint64_t i = 0; i < HITS; i++)
		hits.make(1);
	leader.disable();
	leaders.drain();
	siblings.drain();
	EXPECT_EQ(leader.count(), HITS, "hits counted by the leader");
	EXPECT_EQ(sibling.count(), HITS, "hits counted by the sibling");
	EXPECT_EQ(filter.runs(), HITS, "runs of the leader's program");
	EXPECT_EQ(other.runs(), HITS, "runs of the sibling's program");
	EXPECT_EQ(leaders.samples(), accept ? HITS : 0, "samples of the leader");
	EXPECT_EQ(siblings.samples(), accept ? 0 : HITS, "samples of the sibling");
	EXPECT_EQ(Signals::count(SETSIG), accept ? HITS : 0, "signals of the leader");
}

/* A child inherits the event from its parent, hits, and exits. */
static void check_inherited(const Source &source, bool accept)
{
	Hits hits(source.context);
	Filter filter;
	Signals signals({ SETSIG });
	Event event(inherited(hardware(source)));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	Child child([&] {
		for (uint64_t i = 0; i < HITS; i++)
			hits.make(1);
		return 0;
	});

	EXPECT_STATUS(child.wait(), 0, "the child");
	expect_hits(event, filter, HITS);
	/* The exit of the child wakes up readers of the event once more. */
	EXPECT_GE(Signals::count(SETSIG), accept ? HITS : 0, "signals");
	EXPECT_LE(Signals::count(SETSIG), accept ? HITS + 1 : 0, "signals");
}

static const bool added = [] {
	static const struct {
		const char *name, *event, *rejected, *accepted;
		void (*check)(const Source &source, bool accept);
	} checks[] = {
		{ "", "", "has no side effect", "is delivered", check_effects },
		{ ".limit", "", "takes nothing from the limit", "takes one from the limit",
		  check_limit },
		{ ".sigtrap", "", "raises no SIGTRAP", "raises SIGTRAP", check_sigtrap },
		{ ".group", " of a group leader", "has no side effect, unlike its sibling's",
		  "is delivered, unlike its sibling's", check_group },
		{ ".inherited", " of an inherited event", "has no side effect", "is delivered",
		  check_inherited },
	};

	for (const Source &source : sources)
		for (auto &c : checks)
			for (bool accept : { false, true })
				add_test({ std::string("hardware.") + source.name + c.name +
						   (accept ? ".accepted" : ".rejected"),
					   accept ? "C2" : "C1",
					   std::string(accept ? "an accepted" : "a rejected") +
						   " overflow" + c.event + " in " + source.title +
						   " " + (accept ? c.accepted : c.rejected),
					   [=, &source] { c.check(source, accept); } });
	return true;
}();

/* The kernel chooses the period so that the event overflows @rate times per second. */
static perf_event_attr with_frequency(perf_event_attr attr, uint64_t rate)
{
	attr.freq = 1;
	attr.sample_freq = rate;
	return attr;
}

/*
 * Too many hits at once stop the counter until the next timer tick. No tick can come in between,
 * because the hits are in one interrupt, so there are exactly as many overflows before that as
 * without a program. With attr.freq, the number of hits depends on how long the overflows take.
 */
static void check_throttle(const Source &source, bool frequency)
{
	constexpr uint64_t MANY = 100000;
	constexpr int ENOUGH_TRIES = 5000;
	Hits hits(source.context);
	perf_event_attr attr = hardware(source);
	Filter filter;
	Sysctl rate("kernel/perf_event_max_sample_rate");
	uint64_t usual;

	if (frequency)
		attr = with_frequency(attr, 1000);
	if (!rate.set(1000))
		unavailable("kernel.perf_event_max_sample_rate cannot be set");
	{
		Event without(attr);
		Ring ring(without);

		without.enable();
		hits.make(MANY);
		without.disable();
		ring.drain();
		usual = ring.samples();
		EXPECT_EQ(ring.records(PERF_RECORD_THROTTLE), 1,
			  "PERF_RECORD_THROTTLE records without a program");
	}

	Event event(attr);
	Ring ring(event);

	event.enable(filter);
	hits.make(MANY);

	uint64_t counted = event.count();

	EXPECT_EQ(filter.runs(), usual, "overflows before the throttle, as without a program");
	EXPECT_LT(counted, MANY / 2, "hits counted before the throttle");
	for (int i = 0; event.count() == counted && i < ENOUGH_TRIES; i++) {
		usleep(1000);
		hits.make(1);
	}
	event.disable();
	ring.drain();
	EXPECT_GT(event.count(), counted, "hits counted after the throttle");
	if (!frequency)
		EXPECT_EQ(filter.runs(), event.count(), "runs of the program, as many as hits");
	EXPECT_GT(ring.records(PERF_RECORD_THROTTLE), 0, "PERF_RECORD_THROTTLE records");
	EXPECT_EQ(ring.samples(), 0, "samples");
}

static const bool added_throttle = [] {
	for (const Source &source : sources)
		for (bool frequency : { false, true })
			add_test({ std::string("hardware.") + source.name + ".throttle" +
					   (frequency ? ".frequency" : ""),
				   "C4",
				   std::string(frequency ? "with attr.freq, too many overflows in "
							 : "too many overflows in ") +
					   source.title +
					   " stop the counter even if all are rejected",
				   [=, &source] { check_throttle(source, frequency); } });
	return true;
}();

/*
 * All hits are in one interrupt, so that only overflows change the period, and no timer tick does.
 * The period grows from 1 to one that is long enough within a few overflows, unless the kernel's
 * clock stands still: if the kernel does not trust the TSC, its clock advances only at ticks.
 */
static void check_frequency(const Source &source, bool accept)
{
	constexpr uint64_t MANY = 10000, FEW = 100;
	constexpr int ENOUGH_TRIES = 20;
	Hits hits(source.context);
	perf_event_attr attr = with_frequency(hardware(source), 100);
	Sysctl rate("kernel/perf_event_max_sample_rate");
	uint64_t runs = MANY, period = 0;

	attr.sample_type |= PERF_SAMPLE_PERIOD;
	if (!rate.set(100000000))
		unavailable("kernel.perf_event_max_sample_rate cannot be set");
	for (int i = 0; runs >= FEW && i < ENOUGH_TRIES; i++) {
		Filter filter(Program::LOOKS);
		Signals signals({ SETSIG });
		Event event(attr);
		Ring ring(event);

		event.async(SETSIG, gettid());
		filter.returns(accept);
		event.enable(filter);
		hits.make(MANY);
		event.disable();
		ring.drain();
		runs = filter.runs();
		period = filter.snapshot().period;
		EXPECT_EQ(event.count(), MANY, "hits counted");
		EXPECT_VALUE(ring.samples() + ring.lost() > 0, accept, "samples were written");
		/* All hits are made before the signal can be sent. */
		EXPECT_EQ(Signals::count(SETSIG), accept, "signals");
		if (runs < FEW)
			EXPECT_EQ(ring.samples(), accept ? runs : 0, "samples");
	}
	note("%s: %llu runs, the last period is %llu", source.name, (unsigned long long)runs,
	     (unsigned long long)period);
	EXPECT_GT(runs, 2, "runs of the program");
	EXPECT_LT(runs, FEW, "runs of the program");
	EXPECT_GT(period, 1, "hits in the last period that the program saw");
}

static void check_frequency(bool accept)
{
	for (const Source &source : sources)
		check_frequency(source, accept);
}

TEST_OF("hardware.frequency.rejected", "C1",
	"with attr.freq, rejected overflows have no side effect but lengthen the period",
	check_frequency(false))

TEST_OF("hardware.frequency.accepted", "C2",
	"with attr.freq, accepted overflows are delivered and lengthen the period",
	check_frequency(true))

/*
 * As with large PEBS, two batches end with an interrupt. The driver writes the incomplete third
 * batch only when the event is disabled or the task is switched out. The program runs only for the
 * last record of each complete batch; the driver writes the others unfiltered. The documentation in
 * the series says so.
 */
static void check_batch(bool accept, bool each_interrupts)
{
	constexpr uint64_t RECORDS = 2 * BATCHED + BATCHED / 2;
	const uint64_t expected_runs = each_interrupts ? RECORDS : 2;

	for (uint64_t copy : { uint64_t(0), COPY })
		for (Context context : contexts_to_try()) {
			Hits hits(context);
			perf_event_attr attr = hardware(BATCH | copy);
			Filter filter;
			Signals signals({ SETSIG });

			attr.wakeup_events = each_interrupts;

			Event event(attr);
			Ring ring(event);

			event.async(SETSIG, gettid());
			filter.returns(accept);
			event.enable(filter);
			hits.make(RECORDS);
			event.disable();
			ring.drain();
			EXPECT_EQ(event.count(), RECORDS, "hits counted");
			EXPECT_EQ(filter.runs(), expected_runs, "runs of the program");
			EXPECT_EQ(ring.samples(), accept ? RECORDS : RECORDS - expected_runs,
				  "samples");
			/* All hits are made before the signal can be sent. */
			EXPECT_EQ(Signals::count(SETSIG), accept, "signals");
		}
}

TEST_OF("hardware.batch.rejected", "C1",
	"if a PMU driver batches records, a program can reject only the last one of each batch",
	check_batch(false, false))

TEST_OF("hardware.batch.accepted", "C2",
	"if a PMU driver batches records and the program accepts, all of them are written",
	check_batch(true, false))

TEST_OF("hardware.batch.wakeup_events.rejected", "C1",
	"with attr.wakeup_events set to 1, a PMU driver does not batch, and every record can be "
	"rejected",
	check_batch(false, true))

TEST_OF("hardware.batch.wakeup_events.accepted", "C2",
	"with attr.wakeup_events set to 1, a PMU driver does not batch, and every accepted record "
	"is delivered",
	check_batch(true, true))

/* Like check_callchain() in programs.cc, but the driver takes the callchain, and does so first. */
static void check_callchain(Program program, perf_event_attr other_attr)
{
	for (Context context : contexts_to_try()) {
		Hits hits(context);
		Filter filter(program);
		Event event(with_user_callchain(hardware(CALLCHAIN))), other(other_attr);
		Ring ring(event);

		if (program == Program::OUTPUTS_SAMPLE)
			filter.outputs_to(other);
		filter.returns(1);
		other.enable();
		event.enable(filter);
		for (uint64_t i = 0; i < HITS; i++)
			hits.make(1);
		event.disable();
		expect_hits(event, filter, HITS);
		note("%s: the helper returned %lld", contexts[context], filter.snapshot().err);
		expect_user_callchains(ring, HITS);
	}
}

TEST("hardware.callchain.stack_id", "C2",
     "bpf_get_stackid() of user frames uses the callchain that the PMU driver has taken")
{
	for (Context context : contexts_to_try()) {
		Hits hits(context);
		Filter filter(Program::GETS_STACK_ID);
		Event event(with_user_callchain(hardware(CALLCHAIN)));

		event.enable(filter);
		for (uint64_t i = 1; i <= HITS; i++) {
			hits.make(1);
			EXPECT_EQ(filter.runs(), i, "runs of the program");
			/* An errno is negative. */
			EXPECT_GE(filter.snapshot().stack_id, 0, "from bpf_get_stackid()");
		}
	}
}

TEST("hardware.callchain.frame", "C2",
     "bpf_get_stack() of one frame does not shorten a callchain taken by the PMU driver")
{
	check_callchain(Program::GETS_FRAME, software(PERF_COUNT_SW_DUMMY));
}

TEST("hardware.callchain.output", "C2",
     "a callchain taken by the PMU driver survives a program that writes a sample of another event")
{
	check_callchain(Program::OUTPUTS_SAMPLE,
			with_kernel_callchain(software(PERF_COUNT_SW_BPF_OUTPUT)));
}

TEST("hardware.callchain.event", "C2",
     "a callchain taken by the PMU driver survives an overflow of another event while the "
     "program runs")
{
	check_callchain(Program::PRINTS, with_kernel_callchain(traced_prints()));
}

TEST("hardware.callchain.unseen", "C2",
     "a callchain taken by the PMU driver survives another event's overflow while a program that "
     "does not read the stack runs")
{
	check_callchain(Program::PRINTS_ALONE, with_kernel_callchain(traced_prints()));
}

/*
 * PEBS and IBS: the driver takes the callchain before the program runs. With the series it takes
 * all of it if the event has a program, and so does not defer the user frames, as a stock kernel
 * does. Both are correct, but all samples of an event must be alike.
 */
static void check_deferred_callchain(bool accept)
{
	for (Program program : { Program::ON_OVERFLOW, Program::READS_SAMPLE })
		for (Context context : contexts_to_try()) {
			Hits hits(context);
			Filter filter(program);
			Event event(with_deferred_callchain(hardware(CALLCHAIN)));
			Ring ring(event);

			filter.returns(accept);
			event.enable(filter);
			for (uint64_t i = 0; i < HITS; i++)
				hits.make(1);
			event.disable();

			const UserCallchains found = take_user_callchains(ring);
			const uint64_t wanted = accept ? HITS : 0;

			note("%s: %lu whole callchains, %lu deferred", contexts[context],
			     found.whole, found.deferred);
			EXPECT_EQ(found.samples, wanted, "samples");
			EXPECT_EQ(std::max(found.whole, found.deferred), wanted,
				  "callchains, all whole or all deferred");
			EXPECT_EQ(std::min(found.whole, found.deferred), 0,
				  "callchains unlike the others");
			EXPECT_EQ(found.stray, 0, "deferred callchains of no sample");
		}
}

TEST_OF("hardware.deferred_callchain.rejected", "C1",
	"a rejected overflow leaves no deferred callchain if the PMU driver took a callchain",
	check_deferred_callchain(false))

TEST_OF("hardware.deferred_callchain.accepted", "C2",
	"an accepted overflow whose PMU driver took a callchain has it in its sample, or in a "
	"deferred record with the cookie of the sample",
	check_deferred_callchain(true))

/*
 * A child keeps the program that it has inherited after the link of its parent is closed. The
 * second event prevents the kernel from swapping the contexts of parent and child.
 */
TEST("hardware.deferred_callchain.inherited", "C1",
     "a rejected overflow of a child leaves no deferred callchain after its parent's program is "
     "detached")
{
	const int cpu = usable_cpus().front();

	run_on(cpu);
	for (Context context : contexts_to_try()) {
		Hits hits(context);
		Gate ready, gate;
		Filter filter;
		Event event(inherited(with_deferred_callchain(hardware(CALLCHAIN))), 0, cpu);
		Event not_inherited(software(PERF_COUNT_SW_DUMMY));
		Ring ring(event);
		Fd link = filter.link(event);

		event.enable();

		Child child([&] {
			link.close(); /* the child's copy */
			ready.open();
			gate.pass();
			for (uint64_t i = 0; i < HITS; i++)
				hits.make(1);
			return 0;
		});

		ready.pass();
		link.close();
		gate.open();
		EXPECT_STATUS(child.wait(), 0, "the child");
		event.disable();
		ring.drain();
		EXPECT_EQ(filter.runs(), HITS, "runs of the program");
		EXPECT_EQ(ring.samples(), 0, "samples");
		EXPECT_EQ(ring.records(RECORD_CALLCHAIN_DEFERRED), 0, "deferred callchains");
	}
}

/* The driver sets only the mandatory fields of the sample; the others are uninitialized stack. */
TEST("hardware.no_address", "C15", "ctx->addr is 0 for a PMU event whose driver reports no address")
{
	for (Program which : { Program::LOOKS, Program::GETS_STACK })
		for (Context context : contexts_to_try()) {
			Hits hits(context);
			Filter filter(which);
			Event event(hardware());

			event.must_attach(filter);
			event.enable();
			hits.make(HITS);
			EXPECT_EQ(filter.runs(), HITS, "runs of the program");
			EXPECT_EQ(filter.snapshot().stray, 0, "runs that saw an address");
		}
}

/* All hits are in one interrupt: the return value of perf_event_overflow() stops the counter. */
TEST("hardware.nmi.limit.at_once", "C2",
     "a PMU event that overflows several times in one NMI stops exactly at its limit")
{
	Hits hits(NMI);
	Filter filter;
	Event event(hardware());
	Ring ring(event);

	filter.returns(1);
	event.must_attach(filter);
	event.must_refresh(LIMIT);
	hits.make(HITS);
	ring.drain();
	EXPECT_EQ(event.count(), LIMIT, "hits counted");
	EXPECT_EQ(filter.runs(), LIMIT, "runs of the program");
	EXPECT_EQ(ring.samples(), LIMIT, "samples");
}

/* The PMU still interrupts, like a hardware counter that is narrower than the event's count. */
TEST("hardware.counting", "C3", "the program of a PMU event without a sample period never runs")
{
	for (Context context : contexts_to_try()) {
		Hits hits(context);
		perf_event_attr attr = hardware();
		Filter filter;

		attr.sample_period = 0;

		Event event(attr);
		Ring ring(event);

		filter.returns(1);
		event.must_attach(filter);
		event.enable();
		hits.make(HITS);
		ring.drain();
		EXPECT_EQ(event.count(), HITS, "hits counted");
		EXPECT_EQ(filter.runs(), 0, "runs of the program");
		EXPECT_EQ(ring.samples(), 0, "samples");
	}
}

/* The kernel multiplexes the events on the counters. Programs with an even number reject. */
TEST("hardware.multiplexed", "C1",
     "with more events than counters, each program filters only the overflows of its event")
{
	constexpr int EVENTS = 7, ENOUGH_TRIES = 10000;
	Hits hits(contexts_to_try()[0]);
	Filter filters[EVENTS];
	std::vector<Event> events;
	std::vector<std::unique_ptr<Ring>> rings;
	uint64_t samples[EVENTS] = {};
	auto some_incomplete = [&] {
		return std::any_of(events.begin(), events.end(),
				   [](auto &event) { return event.count() < HITS; });
	};
	/* A long turn on a counter leaves more samples than a Ring remembers. */
	auto drain = [&](int i) {
		rings[i]->drain();
		samples[i] += rings[i]->samples();
		rings[i]->forget();
	};

	for (int i = 0; i < EVENTS; i++) {
		filters[i].returns(i % 2);
		events.emplace_back(hardware(COPY));
		rings.push_back(std::make_unique<Ring>(events[i]));
		events[i].must_attach(filters[i]);
		events[i].enable();
	}
	for (int i = 0; some_incomplete() && i < ENOUGH_TRIES; i++) {
		/* No sleep: the timer rotates the events only if it finds this task running. */
		spin(1);
		hits.make(1);
		for (int event = 0; event < EVENTS; event++)
			drain(event);
	}
	for (int i = 0; i < EVENTS; i++) {
		events[i].disable();
		drain(i);
		EXPECT_GE(events[i].count(), HITS, "hits counted by each event");
		EXPECT_EQ(filters[i].runs(), events[i].count(),
			  "runs of the program, as many as hits");
		EXPECT_EQ(samples[i], i % 2 ? events[i].count() : 0, "samples");
	}
}

TEST("hardware.pinned", "C6",
     "a pinned event that finds no counter sends POLL_ERR where the stock kernel does (since 6.15)")
{
	constexpr int COUNTERS = 4;
	const uint64_t expected = !kernel_before(6, 15);
	const int enough_milliseconds = expected ? 1000 : 50;
	perf_event_attr attr = hardware();
	Signals signals({ SETSIG });
	std::vector<Event> events;
	/* So that Hits raises it again, by a process that must not keep the events open. */
	Sysctl rate("kernel/perf_event_max_sample_rate");

	rate.set(1000);
	attr.pinned = 1;
	for (int i = 0; i <= COUNTERS; i++) {
		events.emplace_back(attr);
		events.back().async(SETSIG, gettid());
		EXPECT_EQ(Signals::count(SETSIG), 0, "signals while there are counters left");
		events.back().enable();
	}
	for (int i = 0; i < enough_milliseconds && !Signals::count(SETSIG); i++)
		usleep(1000);
	EXPECT_EQ(Signals::count(SETSIG, POLL_ERR), expected, "POLL_ERRs");
	EXPECT_EQ(Signals::count(SETSIG), expected, "signals");

	Event last = std::move(events.back());
	Hits hits(IRQ);

	events.clear();
	last.enable();

	const uint64_t before = last.count(); /* which cannot be read in the error state */

	hits.make(HITS);
	EXPECT_EQ(last.count() - before, HITS, "hits counted once there is a counter again");
}

/*
 * NMIs come while a program is being attached and detached, either on this CPU, where they can
 * interrupt attach and detach at any instruction, or on another one. The program accepts, so every
 * hit must be delivered, whether the program is attached or not.
 */
static void check_detach(bool on_other_cpu, uint64_t least)
{
	/*
	 * From another CPU few hits fall into the few instructions of a detach that matter. So make
	 * several in each NMI: most of the time would otherwise pass between the NMIs. On this CPU
	 * an NMI can interrupt the detach anywhere, but all of its hits are at the same place.
	 */
	const uint64_t HITS_PER_NMI = on_other_cpu ? 10 : 1;
	const int ROUNDS = on_other_cpu ? 4 : 1;
	const double seconds = race_seconds(on_other_cpu ? 16 : 5) / ROUNDS;
	int here = usable_cpus()[0], there = other_cpu();
	Hits hits(NMI);
	auto &slow_down = shared_with_children<std::atomic<bool>>();
	Child child([&] {
		for (run_on(there);; slow_down && usleep(1000))
			hits.make(HITS_PER_NMI, on_other_cpu ? -1 : here);
		return 0;
	});
	Filter filter;
	Event event(hardware(), on_other_cpu ? child.pid() : 0);
	Ring ring(event);
	Sysctl rate("kernel/perf_event_max_sample_rate");
	uint64_t samples = 0, turns = 0;

	filter.returns(1);
	if (!filter.can_link())
		unavailable("the kernel has no BPF links for perf events (they came with 5.15)");
	if (!rate.set(100000000))
		unavailable("kernel.perf_event_max_sample_rate cannot be set");
	auto read_ring = [&] {
		ring.drain();
		samples += ring.samples() + ring.lost();
		ring.forget();
	};

	const Bound floor(0, 0, least);

	for (int round = 0; round < ROUNDS && samples == event.count(); round++) {
		const bool is_last = round == ROUNDS - 1;

		slow_down = false;
		event.enable();
		for (double end = seconds_now() + seconds;
		     seconds_now() < end || (is_last && !floor.reached(0, turns)); turns++) {
			filter.link(event).close();
			read_ring();
		}
		event.disable();
		slow_down = true;
		read_ring();
		/*
		 * The next record reports what a full ring has lost, so make a few more hits, for
		 * which the ring has room.
		 */
		uint64_t before = event.count();
		event.enable();
		while (event.count() == before)
			usleep(100);
		event.disable();
		read_ring();
	}
	note("%llu hits, %llu runs, %llu attachments", (unsigned long long)event.count(),
	     (unsigned long long)filter.runs(), (unsigned long long)turns);
	EXPECT_GT(filter.runs(), 0, "runs of the program");
	EXPECT_EQ(samples, event.count(), "samples, as many as hits");
	floor.met(turns, "attachments during the race", samples != event.count());
}

TEST_OF("hardware.nmi.detach.during", "C6",
	"an accepted overflow is delivered when its NMI interrupts attach or detach",
	check_detach(false, 450))

TEST_OF("hardware.nmi.detach.other_cpu", "C6",
	"an accepted overflow is delivered when its NMI runs on another CPU during attach or "
	"detach",
	check_detach(true, 3900))

/*
 * NMIs interrupt bpf(2), which may hold locks that a program needs. Even if the registers are a
 * copy from user mode, the task may be in bpf(2).
 */
static void check_nmi_during_bpf(uint64_t config)
{
	constexpr int SECONDS = 3, CHECK_EVERY = 1000;
	constexpr uint64_t LEAST = 20;
	int here = usable_cpus()[0], there = other_cpu();
	Hits hits(NMI);
	Child child([&] {
		run_on(there);
		for (;;)
			hits.make(1, here);
		return 0;
	});
	Fd map(bpf_map_create(BPF_MAP_TYPE_HASH, nullptr, sizeof(int), sizeof(int), 1, nullptr));
	Filter filter;
	Event event(hardware(config));
	Sysctl rate("kernel/perf_event_max_sample_rate");

	if (!map.valid())
		setup_failed("bpf_map_create", errno);
	if (!rate.set(100000000))
		unavailable("kernel.perf_event_max_sample_rate cannot be set");
	event.enable(filter);

	if (!misses_of_program(filter.prog_fd()))
		unavailable("the kernel has no recursion_misses (they came with 5.12)");

	uint64_t not_run = 0;
	const Bound bound(SECONDS, UINT64_MAX, LEAST);

	for (int i = 1; !bound.reached(0, not_run); i++) {
		int key = 0, value = 0;

		bpf_map_update_elem(map.get(), &key, &value, 0);
		bpf_map_delete_elem(map.get(), &key);
		if (i % CHECK_EVERY == 0) {
			const uint64_t count = event.count(), runs = filter.runs();

			/* Overflows in between only count as runs. */
			not_run = count - std::min(count, runs);
		}
	}
	event.disable();

	const auto misses = misses_of_program(filter.prog_fd());

	note("%llu hits, %llu runs, %llu misses", (unsigned long long)event.count(),
	     (unsigned long long)filter.runs(), (unsigned long long)*misses);
	EXPECT_GT(filter.runs(), 0, "runs of the program");
	EXPECT_GT(*misses, 0, "misses in bpf()");
	bound.met(event.count() - filter.runs(), "overflows in bpf()");
	EXPECT_EQ(filter.runs() + *misses, event.count(), "runs and misses, as many as hits");
}

TEST_OF("hardware.nmi.bpf", "C6",
	"an overflow in an NMI that interrupts bpf() runs the program or is counted as a miss",
	check_nmi_during_bpf(0))

TEST_OF("hardware.nmi_copy.bpf", "C6",
	"an overflow in an NMI with copied user registers that interrupts bpf() runs the program "
	"or is counted as a miss",
	check_nmi_during_bpf(COPY))

/*
 * The NMI comes while the signal of the previous overflow is being sent. Both overflows have
 * user-mode registers, as with a late interrupt of a counter that excludes the kernel.
 */
TEST("hardware.nmi.in_signal", "C6",
     "an overflow in an NMI that interrupts the sending of a signal sends its own signal")
{
	Hits hits(NMI);
	perf_event_attr attr = hardware(COPY);
	Filter filter;
	Signals signals({ SETSIG });

	attr.exclude_kernel = 1;

	Event event(attr);
	Ring ring(event);

	event.async(SETSIG, gettid());
	filter.returns(1);
	event.enable(filter);
	for (uint64_t i = 1; i <= HITS; i++) {
		hits.make_in("kill_fasync");
		hits.make(1);
		EXPECT_EQ(event.count(), 2 * i, "hits counted, half of them in kill_fasync()");
		EXPECT_EQ(Signals::count(SETSIG), 2 * i, "signals");
	}
	event.disable();
	ring.drain();
	expect_hits(event, filter, 2 * HITS);
	EXPECT_EQ(ring.samples(), 2 * HITS, "samples");
}

/*
 * Deleting an element of a resizable hash map disables programs twice, the second time for a part
 * of the deletion. The NMI comes after that part, when programs must still be disabled.
 */
TEST("hardware.nmi.bpf.nested", "C6",
     "an overflow in bpf() is still a miss after a nested section that disables programs has ended")
{
	constexpr auto RESIZABLE_HASH = bpf_map_type(35); /* newer than the headers here */
	Hits hits(NMI);
	LIBBPF_OPTS(bpf_map_create_opts, options, .map_flags = BPF_F_NO_PREALLOC);
	Fd map(bpf_map_create(RESIZABLE_HASH, nullptr, sizeof(int), sizeof(int), 1, &options));

	if (!map.valid() && errno == EINVAL)
		unavailable("the kernel has no resizable hash maps (they came after 7.0)");
	if (!map.valid())
		setup_failed("bpf_map_create", errno);

	Filter filter;
	Event event(hardware());

	event.enable(filter);
	for (int i = 0, key = 0; i < int(HITS); i++) {
		hits.make_in("bpf_mem_cache_free_rcu");
		if (bpf_map_update_elem(map.get(), &key, &i, BPF_ANY) ||
		    bpf_map_delete_elem(map.get(), &key))
			setup_failed("bpf() to change a map", errno);
	}
	EXPECT_EQ(event.count(), HITS, "hits counted in bpf()");
	EXPECT_EQ(filter.runs(), 0, "runs of the program in bpf()");
	EXPECT_EQ(misses_of_program(filter.prog_fd()).value_or(0), HITS, "misses");
	hits.make(1);
	EXPECT_EQ(filter.runs(), 1, "runs of the program after bpf()");
}

/* attr.aux_action, which is newer than the headers here. */
static void set_aux_action(perf_event_attr &attr, uint32_t action)
{
	memcpy(&attr.aux_sample_size + 1, &action, sizeof(action));
}

/*
 * Hits on one function pause the trace of the leader, and hits on another one resume it. A real
 * trace would come from Intel PT or CoreSight.
 */
static void check_aux_pause(Verdict verdict)
{
	constexpr uint32_t PAUSE = 2, RESUME = 4; /* attr.aux_pause, attr.aux_resume */
	constexpr uint64_t PAUSED = 1 << 24; /* see module/perf_bpf_pmu.c */
	perf_event_attr pauses = breakpoint(hit), resumes = breakpoint(hit_other);
	Filter filter;

	if (kernel_before(6, 13))
		unavailable("the kernel has no attr.aux_pause (it came with 6.13)");
	pauses.disabled = resumes.disabled = 0;
	set_aux_action(pauses, PAUSE);
	set_aux_action(resumes, RESUME);

	Event trace(hardware()), pausing(pauses, 0, -1, &trace), resuming(resumes, 0, -1, &trace);
	const Ring ring(trace);

	filter.returns(verdict.returns);
	if (verdict.attached)
		for (const Event *event : { &pausing, &resuming })
			event->must_attach(filter);
	trace.enable();
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		hit_other(i);
	}
	trace.disable();
	EXPECT_EQ(trace.count() / PAUSED, HITS, "times that the trace was paused");
	EXPECT_EQ(trace.count() % PAUSED, HITS, "times that the trace was resumed");
	EXPECT_EQ(filter.runs(), verdict.attached ? 2 * HITS : 0, "runs of the program");
}

TEST_OF("hardware.aux_pause.rejected", "C3",
	"rejected hits still pause and resume the trace of another event, as documented",
	check_aux_pause(rejects))

TEST("hardware.aux_pause.accepted", "C2",
     "accepted hits pause and resume the trace of another event, as hits without a program do")
{
	check_aux_pause(no_program);
	check_aux_pause({ true, 1 });
}

/* A ring with an AUX area of one page, which one overflow of an event with TRACE fills. */
class AuxArea {
public:
	explicit AuxArea(const Event &event)
	{
		map_ = mmap(nullptr, RING, PROT_READ | PROT_WRITE, MAP_SHARED, event.fd(), 0);
		if (map_ == MAP_FAILED)
			setup_failed("mmap of the ring buffer", errno);
		page()->aux_offset = RING;
		page()->aux_size = AREA;
		aux_ = mmap(nullptr, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, event.fd(), RING);
		if (aux_ == MAP_FAILED)
			setup_failed("mmap of the AUX area", errno);
	}
	~AuxArea()
	{
		munmap(aux_, AREA);
		munmap(map_, RING);
	}
	AuxArea(const AuxArea &) = delete;

	uint64_t written() const { return __atomic_load_n(&page()->aux_head, __ATOMIC_ACQUIRE); }
	void consume() { __atomic_store_n(&page()->aux_tail, written(), __ATOMIC_RELEASE); }

private:
	static const size_t RING, AREA;

	perf_event_mmap_page *page() const { return static_cast<perf_event_mmap_page *>(map_); }

	void *map_, *aux_;
};

/* Before 5.13, an AUX area that can be written must have two pages. */
const size_t AuxArea::RING = 2 * sysconf(_SC_PAGESIZE), AuxArea::AREA = AuxArea::RING;

static void check_full_area(uint64_t config, bool limited)
{
	const uint64_t until_disabled = config & CUTS ? 1 : 2;
	Event event(hardware(config));
	AuxArea area(event);
	Hits hits(IRQ);

	if (limited)
		event.must_refresh(2 * HITS);
	else
		event.enable();
	hits.make(1);
	EXPECT_GT(area.written(), 0, "bytes in the AUX area");
	hits.make(1); /* without CUTS it finds no room */
	hits.make(HITS);
	EXPECT_EQ(event.count(), until_disabled, "hits counted until the event is disabled");
	area.consume();
	event.enable();
	hits.make(1);
	EXPECT_EQ(event.count(), until_disabled + 1,
		  "hits counted after the area was read, and the event enabled");
}

TEST("hardware.trace.full", "C10",
     "an event whose AUX area is full is disabled, on every CPU, and counts again when enabled")
{
	for (int cpu : usable_cpus()) {
		run_on(cpu);
		check_full_area(TRACE, false);
		check_full_area(TRACE, true);
	}
}

TEST("hardware.trace.cut", "C10",
     "an event whose trace is incomplete is disabled, on every CPU, and counts again when enabled")
{
	for (int cpu : usable_cpus()) {
		run_on(cpu);
		check_full_area(TRACE | CUTS, false);
	}
}

TEST("hardware.trace.accepted", "C2",
     "an accepted overflow sends no POLL_HUP if the AUX area is full")
{
	Signals signals({ SETSIG });
	Filter filter;
	Event event(hardware(TRACE));
	AuxArea area(event);
	Hits hits(IRQ);

	filter.returns(1);
	event.async(SETSIG, gettid());
	event.enable(filter);
	hits.make(HITS); /* in one interrupt; the event is disabled afterwards */
	EXPECT_GT(Signals::count(SETSIG), 0, "signals");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 0, "POLL_HUPs");
}

/* Bursts of hits interrupt a task that is in bpf(2) most of the time. */
TEST("hardware.nmi.bpf.throttle", "C4", "too many misses in NMIs throttle the counter")
{
	constexpr uint64_t MANY = 10000, BURSTS = 20;
	constexpr int SECONDS = 10;
	constexpr size_t VALUE = 1 << 20;
	int there = other_cpu();
	Hits hits(NMI);
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(int), VALUE, 1, nullptr));
	Child busy([&] {
		std::vector<char> value(VALUE);

		for (run_on(there);;) {
			int key = 0;

			bpf_map_lookup_elem(map.get(), &key, value.data());
		}
		return 0;
	});
	Filter filter;
	SlowSampling slow;
	uint64_t missed = 0, most = 0, usual = 0;

	if (!map.valid())
		setup_failed("bpf_map_create", errno);
	{
		Event without(hardware(), busy.pid());

		without.enable();
		for (uint64_t i = 0, count = 0; i < BURSTS; i++) {
			hits.make(MANY, there);
			usual = std::max(usual, without.count() - count);
			count = without.count();
			usleep(1000);
		}
	}

	Event event(hardware(), busy.pid());

	event.must_attach(filter);
	event.enable();
	for (time_t end = time(nullptr) + SECONDS; missed < BURSTS && time(nullptr) < end;) {
		uint64_t count = event.count(), runs = filter.runs();

		hits.make(MANY, there);
		count = event.count() - count;
		runs = filter.runs() - runs;
		missed += count > runs;
		most = std::max(most, count);
		usleep(1000);
	}
	note("%lu bursts with misses, at most %lu hits in one burst, %lu without a program", missed,
	     most, usual);
	EXPECT_GT(missed, 0, "bursts with misses");
	EXPECT_LT(most, MANY / 2, "hits counted in one burst");
	/* A burst is one NMI, in which no tick can come. */
	EXPECT_EQ(most, usual, "hits counted in one burst, as without a program");
}
