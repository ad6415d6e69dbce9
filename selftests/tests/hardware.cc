// SPDX-License-Identifier: GPL-2.0
/*
 * Events of a hardware PMU, which have what software has not: a context of their own that a group
 * moves to, overflows in NMI, registers that are a copy. The PMU is that of module/perf_bpf_pmu.c,
 * whose counters a test makes count when and where it likes.
 */
#include <bpf/bpf.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>

#include "harness/race.h"
#include "lib/clock.h"
#include "lib/pmu.h"
#include "lib/program.h"
#include "lib/sysctl.h"
#include "tests/callchain.h"
#include "tests/common.h"

/*
 * attr.config of the PMU: the registers are those with which the task left user mode; overflows
 * are collected, BATCHED of them; the driver takes the callchain before the program runs.
 */
constexpr uint64_t COPY = 1, BATCH = 4, CALLCHAIN = 8;
constexpr uint64_t BATCHED = 4;

static std::vector<Context> contexts_to_try()
{
	hardware(); /* or there is none to try */
	return usable_contexts();
}

/* Two CPUs: that of the test, where it goes, and another. */
static int other_cpu()
{
	std::vector<int> cpus = usable_cpus();

	if (cpus.size() < 2)
		unavailable("one CPU alone");
	run_on(cpus[0]);
	return cpus[1];
}

/*
 * The group is taken out of the context of its task, below the software PMU, and put back below
 * the hardware one, a sibling before its leader. The task is busy on another CPU, so that each
 * step is an interrupt there.
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
		EXPECT_GT(leader.count(), before[0], "the leader goes on");
		EXPECT_GT(sibling.count(), before[1], "the sibling goes on");
	}
}

/* Where an overflow comes from, and which registers it has. */
static const struct Way {
	const char *name, *says;
	Context context;
	uint64_t config;
} ways[] = {
	{ "nmi", "an NMI", NMI, 0 },
	{ "irq", "a hard interrupt", IRQ, 0 },
	{ "task", "task context with interrupts off", TASK, 0 },
	{ "nmi_copy", "an NMI with a copy of the user-mode registers", NMI, COPY },
	{ "irq_copy", "a hard interrupt with a copy of the user-mode registers", IRQ, COPY },
	{ "task_copy", "task context with a copy of the user-mode registers", TASK, COPY },
};

static perf_event_attr hardware(const Way &way)
{
	perf_event_attr attr = hardware(way.config);

	/* What is copied is user mode, so the hit counts as one of user mode. */
	attr.exclude_kernel = way.config == COPY;
	return attr;
}

static void check_effects(const Way &way, bool accept)
{
	Hits hits(way.context);
	uint64_t delivered = accept ? HITS : 0, polls = 0;
	Filter filter(Program::LOOKS);
	Signals signals({ SETSIG });
	Event event(hardware(way));
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
	EXPECT_EQ(filter.look().ip >> 63, way.config != COPY, "registers of kernel mode");
	EXPECT_EQ(ring.samples(), delivered, "samples");
	EXPECT_EQ(polls, delivered, "polls that found something");
	EXPECT_EQ(Signals::count(SETSIG), delivered, "signals");
}

static void check_limit(const Way &way, bool accept)
{
	Hits hits(way.context);
	Filter filter;
	Signals signals({ SETSIG });
	Event event(hardware(way));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.must_attach(filter);
	event.must_refresh(LIMIT);
	for (uint64_t i = 0; i < HITS; i++)
		hits.make(1);
	expect_hits(event, filter, accept ? LIMIT : HITS);
	EXPECT_EQ(Signals::count(SETSIG), accept ? LIMIT : 0, "signals");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), accept, "POLL_HUP");
}

static void check_sigtrap(const Way &way, bool accept)
{
	Hits hits(way.context);
	perf_event_attr attr = hardware(way);
	Filter filter;
	Signals signals({ SIGTRAP });

	attr = with_sigtrap(attr);

	Event event(attr);

	filter.returns(accept);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++)
		hits.make(1);
	expect_hits(event, filter, HITS);
	EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), accept ? HITS : 0, "SIGTRAP");
}

/* A leader and its sibling, which overflow in one interrupt, with either verdict. */
static void check_group(const Way &way, bool accept)
{
	Hits hits(way.context);
	perf_event_attr attr = hardware(way);
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
	EXPECT_EQ(filter.runs(), HITS, "runs for the leader");
	EXPECT_EQ(other.runs(), HITS, "runs for the sibling");
	EXPECT_EQ(leaders.samples(), accept ? HITS : 0, "samples of the leader");
	EXPECT_EQ(siblings.samples(), accept ? 0 : HITS, "samples of the sibling");
	EXPECT_EQ(Signals::count(SETSIG), accept ? HITS : 0, "signals of the leader");
}

/* In a child that has the event from its parent, and ends. */
static void check_inherited(const Way &way, bool accept)
{
	Hits hits(way.context);
	Filter filter;
	Signals signals({ SETSIG });
	Event event(inherited(hardware(way)));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	Child child([&] {
		for (uint64_t i = 0; i < HITS; i++)
			hits.make(1);
		return 0;
	});

	EXPECT_EQ(child.wait(), 0, "status of the child");
	expect_hits(event, filter, HITS);
	/* That the child has ended wakes whoever reads, once. */
	EXPECT_EQ(Signals::count(SETSIG) >= HITS, accept, "signals");
}

static const bool added = [] {
	static const struct {
		const char *name, *event, *rejected, *accepted;
		void (*check)(const Way &way, bool accept);
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

	for (const Way &way : ways)
		for (auto &c : checks)
			for (bool accept : { false, true })
				add_test({ std::string("hardware.") + way.name + c.name +
						   (accept ? ".accepted" : ".rejected"),
					   accept ? "C2" : "C1",
					   std::string(accept ? "an accepted" : "a rejected") +
						   " overflow" + c.event + " in " + way.says + " " +
						   (accept ? c.accepted : c.rejected),
					   [=, &way] { c.check(way, accept); } });
	return true;
}();

/* The kernel chooses the period, so that @attr overflows @rate times a second. */
static perf_event_attr with_frequency(perf_event_attr attr, uint64_t rate)
{
	attr.freq = 1;
	attr.sample_freq = rate;
	return attr;
}

/* Too many hits at once stop the counter, until the next tick of the kernel's clock. */
static void check_throttle(const Way &way, bool frequency)
{
	constexpr uint64_t MANY = 100000;
	constexpr int ENOUGH_TRIES = 5000;
	Hits hits(way.context);
	perf_event_attr attr = hardware(way);
	Filter filter;
	Event event(frequency ? with_frequency(attr, 1000) : attr);
	Ring ring(event);
	Sysctl rate("kernel/perf_event_max_sample_rate");

	if (!rate.set(1000))
		unavailable("no way to set kernel.perf_event_max_sample_rate");
	event.enable(filter);
	hits.make(MANY);

	uint64_t counted = event.count();

	EXPECT_LT(counted, MANY / 2, "the counter stopped");
	for (int i = 0; event.count() == counted && i < ENOUGH_TRIES; i++) {
		usleep(1000);
		hits.make(1);
	}
	event.disable();
	ring.drain();
	EXPECT_GT(event.count(), counted, "the counter goes on");
	if (!frequency)
		EXPECT_EQ(filter.runs(), event.count(), "runs, against hits counted");
	EXPECT_GT(ring.records(PERF_RECORD_THROTTLE), 0, "throttle records");
	EXPECT_EQ(ring.samples(), 0, "samples");
}

static const bool added_throttle = [] {
	for (const Way &way : ways)
		for (bool frequency : { false, true })
			add_test({ std::string("hardware.") + way.name + ".throttle" +
					   (frequency ? ".frequency" : ""),
				   "C4",
				   std::string(frequency ? "with attr.freq, too many overflows in "
							 : "too many overflows in ") +
					   way.says + " stop the counter although all are rejected",
				   [=, &way] { check_throttle(way, frequency); } });
	return true;
}();

/*
 * All in one interrupt, so that no tick of the clock changes the period: only overflows do. From
 * a period of 1 it comes to one that is long enough in a few of them, unless the kernel's clock
 * stands still: where it does not trust the hardware's, that waits for the next tick.
 */
static void check_frequency(const Way &way, bool accept)
{
	constexpr uint64_t MANY = 10000, FEW = 100;
	constexpr int ENOUGH_TRIES = 20;
	Hits hits(way.context);
	perf_event_attr attr = with_frequency(hardware(way), 100);
	Sysctl rate("kernel/perf_event_max_sample_rate");
	uint64_t runs = MANY, period = 0;

	attr.sample_type |= PERF_SAMPLE_PERIOD;
	if (!rate.set(100000000))
		unavailable("no way to set kernel.perf_event_max_sample_rate");
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
		period = filter.look().period;
		EXPECT_EQ(event.count(), MANY, "hits counted");
		EXPECT_EQ(ring.samples() + ring.lost() > 0, accept, "samples");
		EXPECT_EQ(Signals::count(SETSIG) > 0, accept, "signals");
		if (runs < FEW)
			EXPECT_EQ(ring.samples(), accept ? runs : 0, "samples");
	}
	note("%s: %llu runs, the last period is %llu", way.name, (unsigned long long)runs,
	     (unsigned long long)period);
	EXPECT_GT(runs, 2, "runs of the program");
	EXPECT_LT(runs, FEW, "runs of the program");
	EXPECT_GT(period, 1, "the period that the program sees last");
}

static void check_frequency(bool accept)
{
	for (const Way &way : ways)
		check_frequency(way, accept);
}

TEST_OF("hardware.frequency.rejected", "C1",
	"with attr.freq, rejected overflows have no side effect but lengthen the period",
	check_frequency(false))

TEST_OF("hardware.frequency.accepted", "C2",
	"with attr.freq, accepted overflows are delivered and lengthen the period",
	check_frequency(true))

/*
 * Large PEBS: two batches that interrupt, and the rest of a third that the driver writes as the
 * event is disabled or the task is switched, which must not be earlier. The program is asked about
 * the last record of each batch that interrupts, and the driver writes the others past it: the
 * kernel does so, and the reference says so.
 */
static void check_batch(bool accept, bool each_interrupts)
{
	constexpr uint64_t RECORDS = 2 * BATCHED + BATCHED / 2;
	const uint64_t asked = each_interrupts ? RECORDS : 2;

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
			EXPECT_EQ(filter.runs(), asked, "runs of the program");
			EXPECT_EQ(ring.samples(), accept ? RECORDS : RECORDS - asked, "samples");
			EXPECT_EQ(Signals::count(SETSIG) > 0, accept, "signals");
		}
}

TEST_OF("hardware.batch.rejected", "C1",
	"of the records that a PMU driver batches, a program can reject the last one of each batch",
	check_batch(false, false))

TEST_OF("hardware.batch.accepted", "C2",
	"all records that a PMU driver batches are written if the program accepts",
	check_batch(true, false))

TEST_OF("hardware.batch.wakeup_events.rejected", "C1",
	"with attr.wakeup_events of 1 a PMU driver does not batch, and every record can be "
	"rejected",
	check_batch(false, true))

TEST_OF("hardware.batch.wakeup_events.accepted", "C2",
	"with attr.wakeup_events of 1 a PMU driver does not batch, and every accepted record is "
	"delivered",
	check_batch(true, true))

/* As check_callchain() of programs.cc, with a callchain that the driver has before the program runs. */
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
		note("%s: %lld", contexts[context], filter.look().err);
		expect_user_callchains(ring, HITS);
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
     "a callchain taken by the PMU driver survives another event's overflow in a program that "
     "does not read the stack")
{
	check_callchain(Program::PRINTS_ALONE, with_kernel_callchain(traced_prints()));
}

/*
 * PEBS and IBS: the driver has the callchain before the program runs. With a program it may be
 * whole, where an event without leaves frames of user mode to a record of their own.
 */
static void check_deferred_callchain(bool accept)
{
	constexpr size_t NR = 3, FIRST = 4; /* words of such a sample */

	for (Program program : { Program::ON_OVERFLOW, Program::READS_SAMPLE })
		for (Context context : contexts_to_try()) {
			Hits hits(context);
			Filter filter(program);
			Event event(with_deferred_callchain(hardware(CALLCHAIN)));
			uint64_t whole = 0, samples = 0;
			Ring ring(event);

			filter.returns(accept);
			event.enable(filter);
			for (uint64_t i = 0; i < HITS; i++)
				hits.make(1);
			for (auto &words : ring.take_samples()) {
				samples++;
				whole += words[NR] > 1 && words[FIRST] == PERF_CONTEXT_USER;
			}
			for (uint64_t i = 0; i < HITS; i++)
				hits.make(1);
			event.disable();
			ring.drain();

			uint64_t deferred = ring.records(RECORD_CALLCHAIN_DEFERRED);

			note("%s: %llu whole callchains, %llu deferred", contexts[context],
			     (unsigned long long)whole, (unsigned long long)deferred);
			EXPECT_EQ(samples, accept ? HITS : 0, "samples");
			EXPECT_EQ(whole + deferred, accept ? HITS : 0, "callchains");
		}
}

TEST_OF("hardware.deferred_callchain.rejected", "C1",
	"a rejected overflow leaves no deferred callchain if the PMU driver took a callchain",
	check_deferred_callchain(false))

TEST_OF("hardware.deferred_callchain.accepted", "C2",
	"an accepted overflow has its callchain, in the sample or deferred, if the PMU driver "
	"took one",
	check_deferred_callchain(true))

/* The driver has left the sample as it found the stack, but for what a sample has to have. */
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
			EXPECT_EQ(filter.look().stray, 0, "runs that saw an address");
		}
}

/* All in one interrupt: it is the answer to the overflow that stops the counter. */
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

/* It interrupts all the same, as a counter does that is shorter than its count. */
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

/* The kernel lets them have the counters in turn. Every other one rejects. */
TEST("hardware.multiplexed", "C1",
     "with more events than counters, each program decides on the overflows of its own event")
{
	constexpr int EVENTS = 7, ENOUGH_TRIES = 10000;
	Hits hits(contexts_to_try()[0]);
	Filter filters[EVENTS];
	std::vector<Event> events;
	std::vector<std::unique_ptr<Ring>> rings;
	uint64_t samples[EVENTS] = {};
	auto some_count_nothing = [&] {
		return std::any_of(events.begin(), events.end(),
				   [](auto &event) { return event.count() < HITS; });
	};
	/* More than a ring remembers, where the turns are long. */
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
	for (int i = 0; some_count_nothing() && i < ENOUGH_TRIES; i++) {
		/* No sleep: a turn passes on only if the timer for that finds us running. */
		spin(1);
		hits.make(1);
		for (int event = 0; event < EVENTS; event++)
			drain(event);
	}
	for (int i = 0; i < EVENTS; i++) {
		events[i].disable();
		drain(i);
		EXPECT_GE(events[i].count(), HITS, "each had a counter for a while");
		EXPECT_EQ(filters[i].runs(), events[i].count(), "runs, against hits counted");
		EXPECT_EQ(samples[i], i % 2 ? events[i].count() : 0, "samples");
	}
}

/*
 * NMIs while a program is attached and detached: from the other CPU into this one, where they come
 * between any two instructions of that, or on the other CPU beside it. The program accepts, so a
 * hit delivers whether it is there or not.
 */
static void check_detach(bool beside)
{
	/* Beside, a kernel that loses hits may lose none for seconds: --race-seconds does not cut that. */
	const int ROUNDS = beside ? 4 : 1;
	const double seconds = (beside ? 16 : race_seconds(5)) / ROUNDS;
	int here = usable_cpus()[0], there = other_cpu();
	Hits hits(NMI);
	auto &slowly = shared_with_children<std::atomic<bool>>();
	Child child([&] {
		for (run_on(there);; slowly && usleep(1000))
			hits.make(1, beside ? -1 : here);
		return 0;
	});
	Filter filter;
	Event event(hardware(), beside ? child.pid() : 0);
	Ring ring(event);
	Sysctl rate("kernel/perf_event_max_sample_rate");
	uint64_t samples = 0, turns = 0;

	filter.returns(1);
	if (!filter.can_link())
		unavailable("the kernel has no BPF links for perf events (they came with 5.15)");
	if (!rate.set(100000000))
		unavailable("no way to set kernel.perf_event_max_sample_rate");
	auto read_ring = [&] {
		ring.drain();
		samples += ring.samples() + ring.lost();
		ring.forget();
	};
	for (int round = 0; round < ROUNDS && samples == event.count(); round++) {
		slowly = false;
		event.enable();
		for (double end = seconds_now() + seconds; seconds_now() < end; turns++) {
			filter.link(event).close();
			read_ring();
		}
		event.disable();
		slowly = true;
		read_ring();
		/*
		 * The next record tells what a full ring had no room for, so there has to be one,
		 * and no more than there is room for.
		 */
		uint64_t before = event.count();
		event.enable();
		while (event.count() == before)
			usleep(100);
		event.disable();
		read_ring();
	}
	note("round: %llu hits, %llu runs, %llu attachments", (unsigned long long)event.count(),
	     (unsigned long long)filter.runs(), (unsigned long long)turns);
	EXPECT_GT(filter.runs(), 0, "the program ran");
	EXPECT_EQ(samples, event.count(), "samples, against hits counted");
}

TEST_OF("hardware.nmi.detach.amid", "C6",
	"an accepted overflow is delivered when its NMI interrupts attach or detach",
	check_detach(false))

TEST_OF("hardware.nmi.detach.beside", "C6",
	"an accepted overflow is delivered when its NMI runs on another CPU during attach or "
	"detach",
	check_detach(true))

/*
 * NMIs in the middle of bpf(2), where it holds what a program may want. Registers of user mode do
 * not say that it is not there.
 */
static void check_amid_bpf(uint64_t config)
{
	constexpr int SECONDS = 3;
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
		unavailable("no way to set kernel.perf_event_max_sample_rate");
	event.enable(filter);
	for (Bound bound(SECONDS); !bound.reached();) {
		int key = 0, value = 0;

		bpf_map_update_elem(map.get(), &key, &value, 0);
		bpf_map_delete_elem(map.get(), &key);
	}
	event.disable();

	const auto misses = misses_of_program(filter.prog_fd());

	if (!misses)
		unavailable("the kernel has no bpf_prog_*misses (it came with 5.12)");
	note("round: %llu hits, %llu runs, %llu misses", (unsigned long long)event.count(),
	     (unsigned long long)filter.runs(), (unsigned long long)*misses);
	EXPECT_GT(filter.runs(), 0, "the program ran");
	EXPECT_GT(*misses, 0, "it is not run in the middle of bpf()");
	EXPECT_EQ(filter.runs() + *misses, event.count(), "runs and misses");
}

TEST_OF("hardware.nmi.bpf", "C6",
	"an overflow in an NMI that interrupts bpf() runs the program or is counted as a miss",
	check_amid_bpf(0))

TEST_OF("hardware.nmi_copy.bpf", "C6",
	"an NMI that interrupts bpf() runs the program or is counted as a miss with copied user "
	"registers, too",
	check_amid_bpf(COPY))

/* A task that is in bpf(2) for the most part, and bursts of hits into it. */
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
	Event event(hardware(), busy.pid());
	SlowSampling slow;
	uint64_t missed = 0, most = 0;

	if (!map.valid())
		setup_failed("bpf_map_create", errno);
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
	note("%llu bursts missed, %llu hits at most", (unsigned long long)missed,
	     (unsigned long long)most);
	EXPECT_EQ(missed > 0, true, "bursts that the program missed");
	EXPECT_EQ(most < MANY / 2, true, "the counter stopped");
}
