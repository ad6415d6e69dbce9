// SPDX-License-Identifier: GPL-2.0
/*
 * C1 and C2 for several breakpoints, breakpoints in kernel mode and groups; and C4: throttling does
 * not depend on the program.
 */
#include <unistd.h>

#include <vector>

#include "lib/clock.h"
#include "tests/common.h"
#include "tests/throttled.h"

namespace {
volatile union Watched {
	uint8_t byte;
	uint64_t word[4];
} watched;
} // namespace

/* All four debug registers of x86. The programs of the second and the fourth reject. */
TEST("events.four", "C1",
     "with all four debug registers in use, each program decides on its own breakpoint")
{
	const struct {
		perf_event_attr attr;
		bool accept;
	} registers[] = {
		{ breakpoint(hit), true },
		{ breakpoint(hit_other), false },
		{ breakpoint(Access::WRITE, &watched.word[0], sizeof(watched.word[0])), true },
		{ breakpoint(Access::READ_WRITE, &watched.word[1], sizeof(watched.word[1])),
		  false },
	};
	Filter accepting, rejecting;
	Signals signals({ SETSIG });
	std::vector<Event> events;

	accepting.returns(1);
	for (auto &r : registers) {
		events.emplace_back(r.attr);
		events.back().async(SETSIG, gettid());
		events.back().must_attach(r.accept ? accepting : rejecting);
		events.back().enable();
	}
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		hit_other(i);
		for (int w : { 0, 1 }) {
			watched.word[w] = i;
			/*
			 * QEMU's TCG leaves the DR6 bit of a hit watchpoint set, and reports that
			 * watchpoint with the others, until a write to the page hits no watchpoint.
			 */
			watched.word[2] = i;
		}
	}
	for (Event &event : events)
		EXPECT_EQ(event.count(), HITS, "hits counted by each event");
	EXPECT_EQ(accepting.runs(), 2 * HITS, "runs of the accepting program");
	EXPECT_EQ(rejecting.runs(), 2 * HITS, "runs of the rejecting program");
	EXPECT_EQ(Signals::count(SETSIG), 2 * HITS, "signals");
}

/* Two events on one address: either the first one or the second one accepts. */
static void check_same_address(const perf_event_attr &attr, void (*access)(uint64_t))
{
	for (bool first_accepts : { false, true }) {
		Filter first, second;
		Signals signals({ SETSIG });
		Event one(attr), two(attr);
		Ring one_ring(one), two_ring(two);
		uint64_t from_wrong = 0;

		first.returns(first_accepts);
		second.returns(!first_accepts);
		one.must_attach(first);
		two.must_attach(second);
		for (Event *event : { &one, &two }) {
			event->async(SETSIG, gettid());
			event->enable();
		}
		for (uint64_t i = 0; i < HITS; i++) {
			access(i);
			from_wrong +=
				Signals::last(SETSIG).si_fd != (first_accepts ? one : two).fd();
		}
		one_ring.drain();
		two_ring.drain();
		EXPECT_EQ(one.count(), HITS, "hits counted by the first event");
		EXPECT_EQ(two.count(), HITS, "hits counted by the second event");
		EXPECT_EQ(first.runs(), HITS, "runs of the first program");
		EXPECT_EQ(second.runs(), HITS, "runs of the second program");
		EXPECT_EQ(one_ring.samples(), first_accepts ? HITS : 0,
			  "samples of the first event");
		EXPECT_EQ(two_ring.samples(), first_accepts ? 0 : HITS,
			  "samples of the second event");
		EXPECT_EQ(Signals::count(SETSIG), HITS, "signals in total");
		EXPECT_EQ(from_wrong, 0, "signals of the rejecting event");
	}
}

TEST_OF("events.same_address.x", "C1",
	"two breakpoints on one function each follow their own program",
	check_same_address(breakpoint(hit), hit))

/* QEMU's TCG reports only one of the watchpoints that an access hits. */
static bool reports_both_watchpoints(const perf_event_attr &attr)
{
	Event one(attr), two(attr);

	one.enable();
	two.enable();
	watched.word[0] = 1;
	return one.count() == 1 && two.count() == 1;
}

TEST("events.same_address.w8", "C1", "two watchpoints on one word each follow their own program")
{
	perf_event_attr attr = breakpoint(Access::WRITE, &watched.word[0], sizeof(watched.word[0]));

	if (!reports_both_watchpoints(attr))
		unavailable("this machine reports only one of two watchpoints on a word");
	check_same_address(attr, [](uint64_t value) { watched.word[0] = value; });
}

/* The kernel reads the watched byte in write() to a pipe, and writes it in read() from the pipe. */
static void check_kernel_mode(bool exclude_kernel, bool accept)
{
	Pipe pipe;
	auto *byte = const_cast<uint8_t *>(&watched.byte);
	const struct {
		Access access;
		uint64_t by_kernel, by_user; /* hits of one round */
	} kinds[] = { { Access::WRITE, 1, 1 }, { Access::READ_WRITE, 2, 1 } };

	if (!exclude_kernel)
		need_kernel_hits();

	for (auto &kind : kinds) {
		perf_event_attr attr = breakpoint(kind.access, byte, 1);
		Filter filter;
		Signals signals({ SETSIG });

		attr.exclude_kernel = exclude_kernel;

		Event event(attr);
		Ring ring(event);

		event.async(SETSIG, gettid());
		filter.returns(accept);
		event.enable(filter);
		for (uint64_t i = 0; i < HITS; i++) {
			watched.byte = i;
			if (write(pipe.in.get(), byte, 1) != 1 ||
			    read(pipe.out.get(), byte, 1) != 1)
				setup_failed("write to and read from a pipe", errno);
		}
		event.disable();
		ring.drain();

		uint64_t hits = HITS * (kind.by_user + (exclude_kernel ? 0 : kind.by_kernel));

		expect_hits(event, filter, hits);
		expect_delivered(ring, accept ? hits : 0);
	}
}

TEST_OF("events.kernel.rejected", "C1",
	"rejected hits in kernel mode have no side effect, like those in user mode",
	check_kernel_mode(false, false))

TEST_OF("events.kernel.accepted", "C2",
	"accepted hits in kernel mode are delivered like those in user mode",
	check_kernel_mode(false, true))

TEST_OF("events.kernel.excluded.rejected", "C1",
	"with exclude_kernel, the program rejects hits in user mode and does not run in kernel "
	"mode",
	check_kernel_mode(true, false))

TEST_OF("events.kernel.excluded.accepted", "C2",
	"with exclude_kernel, accepted hits are delivered in user mode only",
	check_kernel_mode(true, true))

/* A leader and a sibling: neither, one or both programs accept. */
static void check_group(perf_event_attr first, bool leader_hits)
{
	for (unsigned accepting : { 0u, 1u, 2u, 3u }) {
		perf_event_attr attr = breakpoint(hit_other);
		Filter filters[2];
		Signals signals({ SETSIG });

		attr.disabled = 0; /* enabled and disabled with its leader */

		Event leader(first), sibling(attr, 0, -1, &leader);
		Event *events[] = { &leader, &sibling };
		uint64_t expected_signals = 0;

		for (int i = 0; i < 2; i++) {
			bool accept = accepting & (1 << i);

			filters[i].returns(accept);
			events[i]->must_attach(filters[i]);
			events[i]->async(SETSIG, gettid());
			expected_signals += accept && (i || leader_hits) ? HITS : 0;
		}
		leader.enable();
		for (uint64_t i = 0; i < HITS; i++) {
			hit(i);
			hit_other(i);
		}
		EXPECT_EQ(filters[0].runs(), leader_hits ? HITS : 0,
			  "runs of the leader's program");
		if (leader_hits)
			EXPECT_EQ(leader.count(), HITS, "hits counted by the leader");
		EXPECT_EQ(sibling.count(), HITS, "hits counted by the sibling");
		EXPECT_EQ(filters[1].runs(), HITS, "runs of the sibling's program");
		EXPECT_EQ(Signals::count(SETSIG), expected_signals, "signals");
	}
}

TEST_OF("events.group.breakpoints", "C1",
	"the programs of a group's leader and sibling each decide on their own hits",
	check_group(breakpoint(hit), true))

TEST("events.group.limit", "C10",
     "a sibling that uses up its limit does not stop its leader, and REFRESH re-enables it")
{
	perf_event_attr attr = breakpoint(hit_other);

	attr.disabled = 0;

	Event leader(breakpoint(hit)), sibling(attr, 0, -1, &leader);
	const auto hit_both = [] {
		hit_times(HITS);
		hit_other_times(HITS);
	};

	leader.enable();
	for (uint64_t round = 1; round <= 3; round++) {
		sibling.must_refresh(LIMIT);
		hit_both();
		EXPECT_EQ(sibling.count(), round * LIMIT, "hits counted by the sibling");
		EXPECT_EQ(leader.count(), round * HITS, "hits counted by the leader");
	}
}

TEST("events.group.software", "C1",
     "the program of a breakpoint decides on its hits in a group led by a task clock")
{
	perf_event_attr clock = counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK);

	clock.sample_period = 0;
	check_group(clock, false);
}

/*
 * A breakpoint that joins a running group must count from its first hit, not only after the task is
 * next scheduled in. That can happen at any moment and hide a lost hit, so try more than once.
 */
static void check_joining(bool disabled, bool on_cpu)
{
	constexpr int TRIES = 20;
	const pid_t task = on_cpu ? -1 : 0;
	const int cpu = on_cpu ? usable_cpus().front() : -1;
	perf_event_attr clock = counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
	perf_event_attr attr = breakpoint(hit);
	uint64_t counted = 0, runs = 0;

	if (on_cpu)
		run_on(cpu);
	clock.sample_period = 0;
	attr.disabled = disabled;
	for (int i = 0; i < TRIES; i++) {
		Filter filter;
		Event leader(clock, task, cpu);

		leader.enable();

		Event sibling(attr, task, cpu, &leader);

		if (disabled)
			sibling.enable(filter);
		for (uint64_t n = 0; n < HITS; n++)
			hit(n);
		counted += sibling.count();
		runs += filter.runs();
	}
	EXPECT_EQ(counted, TRIES * HITS, "hits counted by the sibling");
	EXPECT_EQ(runs, disabled ? TRIES * HITS : 0, "runs of the program");
}

TEST_OF("events.group.added", "C6",
	"a breakpoint that is opened in a running group counts from its first hit",
	check_joining(false, false))

TEST_OF("events.group.enabled", "C6",
	"a breakpoint that is enabled in a running group counts from its first hit",
	check_joining(true, false))

TEST_OF("events.group.added.cpu", "C6",
	"a CPU-wide breakpoint that is opened in a running group counts from its first hit",
	check_joining(false, true))

TEST_OF("events.group.enabled.cpu", "C6",
	"a CPU-wide breakpoint that is enabled in a running group counts from its first hit",
	check_joining(true, true))

/*
 * The overflows of a clock, and its throttles. @filter is attached, or nullptr for the event
 * without a program.
 */
struct Throttled {
	uint64_t overflows, throttles;
};

static Throttled overflow_until_throttled(const Filter *filter)
{
	constexpr long ENOUGH_MILLISECONDS = 5000;
	perf_event_attr attr = counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK);

	attr.sample_period = 100000; /* ns */
	attr.wakeup_events = 0; /* see check_throttle_stops() */

	Event event(attr);
	Ring ring(event);

	if (filter)
		event.must_attach(*filter);
	event.enable();
	for (long waited = 0;
	     ring.records(PERF_RECORD_UNTHROTTLE) < HITS && waited < ENOUGH_MILLISECONDS;
	     waited += 10) {
		spin(10);
		ring.drain();
	}
	event.disable();
	ring.drain();
	EXPECT_GE(ring.records(PERF_RECORD_THROTTLE), HITS, "PERF_RECORD_THROTTLE records");
	EXPECT_GE(ring.records(PERF_RECORD_UNTHROTTLE), HITS, "PERF_RECORD_UNTHROTTLE records");
	EXPECT_EQ(ring.lost(), 0, "lost records");
	if (filter)
		EXPECT_EQ(ring.samples(), 0, "samples of rejected overflows");
	return { filter ? filter->runs() : ring.samples(), ring.records(PERF_RECORD_THROTTLE) };
}

/*
 * The deliberate exception to C1: an overflow takes time even if its program rejects it, so the
 * kernel throttles a clock that overflows too often. With SlowSampling every overflow is one too
 * many, so the numbers are exact, with and without a program.
 */
TEST("events.throttle", "C4",
     "a clock whose overflows are all rejected is throttled as soon as one without a program")
{
	Filter filter;
	SlowSampling slow;
	const Throttled without = overflow_until_throttled(nullptr);
	const Throttled with = overflow_until_throttled(&filter);

	note("%lu overflows and %lu throttles, %lu and %lu without a program", with.overflows,
	     with.throttles, without.overflows, without.throttles);
	EXPECT_EQ(without.overflows, without.throttles, "overflows, as many as throttles");
	EXPECT_EQ(with.overflows, with.throttles, "rejected overflows, as many as throttles");
}

/*
 * The records alone do not prove that the clock has stopped: between two looks at the ring that
 * find the clock in the same throttle, the program must not run.
 */
static void check_throttle_stops(bool accept)
{
	constexpr long ENOUGH_MILLISECONDS = 10000;
	perf_event_attr attr = counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
	Filter filter;
	uint64_t throttles = 0, in_throttle = 0, runs = 0, looks = 0, wrong = 0;

	attr.sample_period = 100000; /* ns */
	/* On PREEMPT_RT a wakeup switches to a thread, which ends the throttle. */
	attr.wakeup_events = 0;

	Event event(attr);
	Ring ring(event);
	SlowSampling slow;

	auto look = [&] {
		uint64_t runs_now = filter.runs();

		ring.drain();
		throttles = ring.records(PERF_RECORD_THROTTLE);
		if (throttles > ring.records(PERF_RECORD_UNTHROTTLE)) {
			looks += throttles == in_throttle;
			wrong += throttles == in_throttle && runs_now != runs;
			in_throttle = throttles;
		}
		runs = filter.runs();
	};

	filter.returns(accept);
	event.enable(filter);
	/* Count only milliseconds in which this task was running. */
	for (long looked = 0; throttles < HITS && looked < ENOUGH_MILLISECONDS; looked++)
		for (long end = milliseconds_now() + 1; milliseconds_now() < end;)
			look();
	event.disable();
	EXPECT_GE(throttles, HITS, "PERF_RECORD_THROTTLE records");
	EXPECT_GT(looks, 0, "looks at a throttled clock");
	EXPECT_EQ(wrong, 0, "looks at a throttled clock that found it running");
}

TEST("events.throttle_stops", "C4",
     "while a clock whose overflows are rejected is throttled, its program does not run")
{
	check_throttle_stops(false);
}

TEST("events.throttle_stops.accepted", "C4",
     "while a clock whose overflows are accepted is throttled, its program does not run")
{
	check_throttle_stops(true);
}

TEST_OF("events.group.throttled", "C10",
	"a breakpoint that was throttled with its group counts again afterwards",
	check_group_throttled(breakpoint(hit), hit_times))

TEST_OF("events.group.throttled.counter", "C10",
	"a breakpoint without a sample period that was throttled with its group counts again "
	"afterwards",
	check_group_throttled(without_period(breakpoint(hit)), hit_times))
