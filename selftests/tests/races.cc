// SPDX-License-Identifier: GPL-2.0
/* Hits that race with attach, detach, exit or bpf(2) in other tasks: C6, C7, C8, C10. */
#include <bpf/bpf.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "harness/race.h"
#include "lib/clock.h"
#include "lib/kernel.h"
#include "lib/program.h"
#include "tests/common.h"
#include "tests/meanwhile.h"

/*
 * For each hit, the stock kernel reads the program of the event twice, and calls rcu_read_lock() in
 * between. A breakpoint on that function gives a detach far more time to happen there. It cannot be
 * set if the function is inlined (PREEMPT_RCU=n), if its address is hidden, or on arm64, which has
 * no task breakpoints in the kernel.
 */
static std::optional<Event> slow_rcu_read_lock()
{
	perf_event_attr attr = breakpoint(Access::EXECUTE, nullptr, EXECUTE_LENGTH);

	attr.bp_addr = kernel_address_of("__rcu_read_lock");
	attr.exclude_kernel = 0;
	attr.sample_period = 0;
	if (!attr.bp_addr)
		return {};

	Fd fd = open_event(attr);

	if (!fd.valid())
		return {};

	Event event(std::move(fd));

	event.enable();
	return event;
}

/*
 * @least: how many detaches must take place during the race
 * @batch(n) hits n times, and returns how many of the hits were not delivered correctly.
 */
template <typename Batch>
static void race_detach(const Event &event, int there, uint64_t least, Batch batch)
{
	constexpr uint64_t RACES = 4'000'000;
	/* A busy host may run only one CPU of a guest at a time for seconds: then nothing races. */
	constexpr int SECONDS = 15;
	Filter filter;
	uint64_t hits = 0, lost = 0, detached;

	filter.returns(1);
	filter.link(event).close();

	const Bound first_half(race_seconds(SECONDS) / 2, RACES), bound(SECONDS, RACES, least);

	{
		Meanwhile detaching(there,
				    [&](uint64_t) { must_link(filter.prog_fd(), event).close(); });
		const auto race_in_batches_of = [&](uint64_t times, const Bound &until) {
			for (; !lost && !until.reached(hits, detaching.rounds()); hits += times)
				lost = batch(times);
		};

		{
			const std::optional<Event> slow = slow_rcu_read_lock();

			race_in_batches_of(10, first_half);
		}
		/* Now without it, so that hits are as fast as possible. */
		race_in_batches_of(1000, bound);
		detached = detaching.rounds();
	}
	note("%lu of %lu hits lost, %lu detaches", lost, hits, detached);
	EXPECT_EQ(lost, 0, "hits lost");
	bound.met(detached, "detaches during the race", lost);
	EXPECT_EQ(event.count(), hits, "hits counted");
}

TEST("races.detach.samples", "C6", "a hit that races with a detach leaves its sample")
{
	const int there = two_cpus().there;
	perf_event_attr attr = breakpoint(hit);

	/* Make hits as fast as possible: no wakeups, and a ring that never fills up. */
	attr.sample_type = 0;
	attr.wakeup_events = 0;

	Event event(attr);
	Ring ring(event);

	event.enable();
	race_detach(event, there, 3900, [&](uint64_t times) {
		ring.forget();
		hit_times(times);
		ring.drain();
		EXPECT_EQ(ring.records(PERF_RECORD_LOST), 0, "PERF_RECORD_LOST records");
		return times - ring.samples();
	});
}

/* The number of hits without exactly one @sig before the next instruction. */
static uint64_t signals_missed(int sig, uint64_t times)
{
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < times; i++) {
		uint64_t before = Signals::count(sig);

		hit(i);
		wrong += Signals::count(sig) - before != 1;
	}
	return wrong;
}

TEST("races.detach.signals", "C6", "a hit that races with a detach sends its signal exactly once")
{
	const int there = two_cpus().there;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));

	event.async(SETSIG, gettid());
	event.enable();
	race_detach(event, there, 4700,
		    [&](uint64_t times) { return signals_missed(SETSIG, times); });
}

TEST("races.detach.sigtrap", "C6", "a hit that races with a detach raises SIGTRAP exactly once")
{
	const int there = two_cpus().there;
	Signals signals({ SIGTRAP });
	Event event(with_sigtrap(breakpoint(hit)));

	event.enable();
	race_detach(event, there, 4400,
		    [&](uint64_t times) { return signals_missed(SIGTRAP, times); });
}

/*
 * Opening an event on a running task sends an IPI, which schedules the other events of the task out
 * and in again, and which may be handled before the irq_work of a hit. Here the other event is
 * opened while the program runs, so that the IPI and the irq_work are both pending after it.
 */
TEST("races.opened.sigtrap", "C6",
     "a hit that uses up the limit raises SIGTRAP even if another event is opened on the task")
{
	constexpr uint64_t RACES = 20'000, LEAST = 20;
	constexpr int SECONDS = 9, BLOCKS = 200;
	static const char block[FILTER_BLOCK] = {};
	const int there = two_cpus().there;
	const pid_t tid = gettid();
	perf_event_attr others = software(PERF_COUNT_SW_DUMMY);
	Signals signals({ SIGTRAP });
	Event event(with_sigtrap(breakpoint(hit)));
	Filter filter(Program::WORKS);
	uint64_t hits = 0, lost = 0;
	std::atomic<uint64_t> opened = 0;

	others.disabled = 0;
	filter.returns(1);
	filter.works(block, BLOCKS);
	event.must_attach(filter);

	const Bound bound(SECONDS, RACES, LEAST);

	{
		uint64_t seen = 0;
		Meanwhile opening(there, [&](uint64_t) {
			const uint64_t runs = filter.runs();

			if (runs == seen)
				return;
			seen = runs;
			open_event(others, tid);
			opened++;
		});

		for (; !lost && !bound.reached(hits, opened); hits++) {
			event.must_refresh(1);
			lost = signals_missed(SIGTRAP, 1);
			hit(0); /* Not counted: the event is disabled. */
		}
	}
	note("%lu of %lu hits lost, %lu events opened", lost, hits, opened.load());
	EXPECT_EQ(lost, 0, "hits lost");
	bound.met(opened, "events opened during the race", lost);
	EXPECT_EQ(Signals::count(SIGTRAP), hits, "SIGTRAPs");
	EXPECT_EQ(event.count(), hits, "hits counted");
}

/*
 * A page fault overflows with interrupts enabled. The program is slow enough for another CPU to
 * disable the event during the overflow, unless the kernel disables interrupts for it.
 */
class Faults {
public:
	explicit Faults(int there, bool sigtrap = false)
		: there_(there)
		, event_(with_sigtrap(page_faults(), sigtrap))
	{
		static volatile char block[FILTER_BLOCK];
		constexpr int BLOCKS = 16;

		for (volatile char &byte : block)
			byte = 1; /* the program cannot read a page that is not present */
		filter_.returns(1);
		filter_.works(const_cast<const char *>(block), BLOCKS);
		event_.must_attach(filter_);
	}
	Event &event() { return event_; }
	uint64_t runs() const { return filter_.runs(); }
	void hit()
	{
		alignas(PAGE) static char page[PAGE];

		if (madvise(page, PAGE, MADV_DONTNEED))
			setup_failed("madvise", errno);
		*const_cast<volatile char *>(page) = 1;
	}
	/* Calls @enable and hits. The other CPU disables the event while the program runs. */
	template <typename Enable> void disabled_hit(Enable enable)
	{
		const uint64_t before = runs();
		std::atomic<bool> ready = false;
		std::thread other([&] {
			run_on(there_);
			ready = true;
			while (runs() == before)
				;
			event_.disable();
		});

		while (!ready)
			sched_yield();
		enable();
		hit();
		other.join();
	}

private:
	static constexpr size_t PAGE = 4096;

	static perf_event_attr page_faults()
	{
		perf_event_attr attr = software(PERF_COUNT_SW_PAGE_FAULTS, 1);

		attr.exclude_kernel = 1;
		return attr;
	}

	int there_;
	Filter filter_{ Program::WORKS };
	Event event_;
};

/*
 * In each round the two sides wait for each other. The first round is not checked, because it may
 * also fault in code pages of the test.
 */
constexpr uint64_t MOST_DISABLED = 2000, LEAST_DISABLED = 20;
constexpr int DISABLED_SECONDS = 16;

TEST("races.disabled.sigtrap", "C6",
     "an accepted hit raises SIGTRAP even if its event is disabled while the program runs")
{
	Signals signals({ SIGTRAP });
	Faults faults(two_cpus().there, true);
	uint64_t round = 0, ran = 1, raised = 1;
	const Bound bound(DISABLED_SECONDS, MOST_DISABLED, LEAST_DISABLED);

	for (; ran == 1 && raised == 1 && !bound.reached(round, round); round++) {
		const uint64_t runs = faults.runs(), traps = Signals::count(SIGTRAP);

		faults.disabled_hit([&] { faults.event().enable(); });
		if (!round)
			continue;
		ran = faults.runs() - runs;
		raised = Signals::count(SIGTRAP) - traps;
	}
	EXPECT_EQ(ran, 1, "runs of the program in each round");
	EXPECT_EQ(raised, 1, "SIGTRAPs in each round");
	bound.met(round, "rounds", ran != 1 || raised != 1);
}

TEST("races.disabled.limit", "C10",
     "an event that is disabled while a hit uses up its limit can be re-enabled by REFRESH")
{
	constexpr uint64_t MORE = 3;
	Faults faults(two_cpus().there);
	uint64_t round = 0, ran = 1 + MORE;
	const Bound bound(DISABLED_SECONDS, MOST_DISABLED, LEAST_DISABLED);

	for (; ran == 1 + MORE && !bound.reached(round, round); round++) {
		const uint64_t runs = faults.runs();

		faults.disabled_hit([&] { faults.event().must_refresh(1); });
		faults.event().must_refresh(MORE);
		usleep(1000); /* schedules the event out and in */
		for (uint64_t i = 0; i <= MORE; i++)
			faults.hit();
		if (round)
			ran = faults.runs() - runs;
	}
	EXPECT_EQ(ran, 1 + MORE, "runs of the program in each round");
	bound.met(round, "rounds", ran != 1 + MORE);
}

enum class TurnedOn {
	BY_REFRESH,
	BY_REFRESH_ON_CPU, /* of a CPU-wide event */
	BY_REFRESH_AND_OPEN, /* opening another event schedules the events of the task out */
	BY_ENABLE,
};

/*
 * A hit uses up the limit, and another CPU sees its sample before the event is disabled. The
 * REFRESH or ENABLE on that CPU must take effect: the next hit must be counted. A second event
 * on the same address, whose program is slow, delays the irq_work that disables the first.
 */
static void check_turned_on_elsewhere(TurnedOn how)
{
	const bool by_refresh = how != TurnedOn::BY_ENABLE;
	const bool on_cpu = how == TurnedOn::BY_REFRESH_ON_CPU;
	constexpr int SECONDS = 9, BLOCKS = 200;
	constexpr uint64_t LEAST = 20;
	static const char block[FILTER_BLOCK] = {};
	const std::vector<int> cpus = usable_cpus();
	std::atomic<uint64_t> turned_on = 0;
	uint64_t hits = 0, counted = 0;

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	run_on(cpus[0]);

	const pid_t tid = gettid();
	/* Since 6.12 only events of the PMU of the new event are scheduled out. */
	perf_event_attr attr = breakpoint(hit), another = breakpoint(hit_other);

	/* No wakeup: only the work that disables the event is pending. */
	attr.wakeup_events = 0;
	another.disabled = 0;

	Event event(attr, on_cpu ? -1 : 0, on_cpu ? cpus[0] : -1);
	Event slow(breakpoint(hit), on_cpu ? -1 : 0, on_cpu ? cpus[0] : -1);
	std::optional<Event> of_task;
	Filter filter(Program::WORKS);
	Ring ring(event);
	uint64_t seen = 0;
	Meanwhile other(cpus[1], [&](uint64_t) {
		const uint64_t head = ring.head();

		if (head == seen)
			return;
		if (by_refresh)
			event.must_refresh(1);
		else
			event.enable();
		/* The IPI may be handled before the irq_work of the hit. */
		if (how == TurnedOn::BY_REFRESH_AND_OPEN)
			open_event(another, tid);
		seen = head;
		turned_on++;
		ring.drain();
		ring.forget();
	});
	const auto hit_and_wait = [&] {
		const uint64_t before = turned_on;

		/* A hit reaches the events in the order in which they have been enabled. */
		slow.disable();
		slow.enable();
		hit(hits++);
		counted = event.count();
		while (counted == hits && turned_on == before)
			;
	};

	/*
	 * If the task has events, too, the CPU-wide event must not be scheduled in without the lock
	 * of the task's context.
	 */
	if (on_cpu)
		of_task.emplace(software(PERF_COUNT_SW_DUMMY)).enable();
	filter.works(block, BLOCKS);
	slow.must_attach(filter);
	event.must_refresh(1);

	const Bound bound(SECONDS, 100'000, LEAST);

	while (counted == hits && !bound.reached(hits, turned_on)) {
		hit_and_wait();
		/* After ENABLE the event has no limit. */
		if (!by_refresh && counted == hits) {
			hit_and_wait();
			event.must_refresh(1);
		}
	}
	note("%llu hits", (unsigned long long)hits);
	EXPECT_EQ(counted, hits, "hits counted by the re-enabled event");
	bound.met(turned_on, "times that the other CPU re-enabled the event", counted != hits);
}

TEST_OF("races.refresh", "C10",
	"a REFRESH on another CPU that races with the hit that uses up the limit takes effect",
	check_turned_on_elsewhere(TurnedOn::BY_REFRESH))

TEST_OF("races.refresh.opened", "C10",
	"a REFRESH that races with the hit that uses up the limit takes effect even if another "
	"event is then opened on the task",
	check_turned_on_elsewhere(TurnedOn::BY_REFRESH_AND_OPEN))

TEST_OF("races.refresh.cpu", "C10",
	"a REFRESH of a CPU-wide event that races with the hit that uses up the limit takes effect",
	check_turned_on_elsewhere(TurnedOn::BY_REFRESH_ON_CPU))

TEST_OF("races.enable", "C10",
	"an ENABLE on another CPU that races with the hit that uses up the limit takes effect",
	check_turned_on_elsewhere(TurnedOn::BY_ENABLE))

/*
 * The exit of a child wakes up tasks that poll the parent's event. It must neither repeat nor drop
 * the signal of a hit whose irq_work is pending.
 */
TEST("races.exit", "C6",
     "a hit sends its signal exactly once while children that inherited the event exit")
{
	constexpr uint64_t RACES = 400'000, LEAST = 37;
	constexpr int SECONDS = 8, ENOUGH_MILLISECONDS = 200;
	/*
	 * On PREEMPT_RT the thread that sends the signal may sleep on a lock that the child holds,
	 * and all hits until it runs share one signal. So wait for the signal of each hit.
	 */
	const uint64_t batch = kernel_is_realtime() ? 1 : 100;
	const int there = two_cpus().there;
	Signals signals({ SETSIG });
	auto &ended = shared_with_children<std::atomic<uint64_t>>();
	uint64_t hits = 0;

	/* This event is not inherited, so that the contexts of parent and child are not swapped. */
	Event other(software(PERF_COUNT_SW_TASK_CLOCK));
	Event event(inherited(breakpoint(hit)));

	event.async(SETSIG, gettid());
	event.enable();

	Child parent([&] {
		for (run_on(there);; ended++)
			std::thread([] {}).join();
		return 0;
	});

	const Bound bound(SECONDS, RACES, LEAST);

	while (Signals::count(SETSIG) == hits && !bound.reached(hits, ended)) {
		hit_times(batch);
		hits += batch;
		/* The signal may come late if an exiting child on the other CPU sends it. */
		for (int i = 0; Signals::count(SETSIG) < hits && i < ENOUGH_MILLISECONDS; i++)
			usleep(1000);
	}
	note("%lu signals of %lu hits, %lu exits", Signals::count(SETSIG), hits, ended.load());
	EXPECT_EQ(Signals::count(SETSIG), hits, "signals");
	bound.met(ended, "children that have exited", Signals::count(SETSIG) != hits);
}

TEST("races.attach", "C8",
     "of two concurrent attachments one succeeds, and the other fails with EEXIST until the "
     "first detaches")
{
	constexpr uint64_t ROUNDS = 100'000, LEAST = 33;
	constexpr int SECONDS = 8;
	const int there = two_cpus().there;
	Filter filter;
	Event event(breakpoint(hit));
	std::atomic<uint64_t> attached = 0, refused = 0, together = 0, holders = 0, failed = 0;
	auto round = [&](uint64_t) {
		int err;
		Fd link = filter.link(event, &err);

		if (link.valid()) {
			together += holders++ > 0;
			attached++;
			/* Give a thread that attached at the same time a chance to return. */
			for (int i = 0; i < 500; i++)
				asm volatile("");
			holders--;
		} else {
			(err == EEXIST ? refused : failed)++;
		}
	};
	const Bound bound(SECONDS, ROUNDS, LEAST);

	{
		Meanwhile other(there, round);

		while (!together &&
		       !bound.reached(attached + refused, std::min<uint64_t>(attached, refused)))
			round(0);
	}
	note("%lu attached, %lu refused", attached.load(), refused.load());
	/* An attachment is refused only while the other one exists. */
	bound.met(std::min(attached.load(), refused.load()), "attachments and refusals", together);
	EXPECT_EQ(together, 0, "attachments that succeeded while the other one was attached");
	EXPECT_EQ(failed, 0, "attachments that failed with an errno other than EEXIST");
}

/*
 * The kernel disables the breakpoint while it moves it, so a hit may not be counted. The program
 * accepts the hits of one of the two addresses.
 */
TEST("races.modify", "C9",
     "a hit while another thread moves the breakpoint runs the program once at most, which sees "
     "the address of the hit, and has the effects of its verdict once")
{
	constexpr uint64_t RACES = 400'000, BATCH = 100, LEAST = 20;
	constexpr int SECONDS = 8;
	const int there = two_cpus().there;
	const perf_event_attr attrs[] = { breakpoint(hit), breakpoint(hit_other) };
	Signals signals({ SETSIG });
	Filter filter;
	Event event(attrs[0]);
	uint64_t hits = 0, wrong = 0, moved;

	filter.returns_if(1, FILTER_ADDRESS, attrs[0].bp_addr);
	event.async(SETSIG, gettid());
	event.enable(filter);

	const Bound bound(SECONDS, RACES, LEAST);
	/* Hits @function; returns whether this had other effects than it may. */
	const auto hit_wrongly = [&](void (*function)(uint64_t), bool accepted) {
		const uint64_t runs = filter.runs(), sent = Signals::count(SETSIG);

		function(hits++);

		const uint64_t ran = filter.runs() - runs;

		return ran > 1 || Signals::count(SETSIG) - sent != (accepted ? ran : 0);
	};

	{
		Meanwhile moving(there, [&](uint64_t round) {
			perf_event_attr attr = attrs[(round + 1) % 2];

			attr.disabled = 0;
			event.modify(attr);
		});
		const auto met = [&] { return std::min(moving.rounds(), filter.runs()); };

		while (!wrong && !bound.reached(hits, met()))
			for (uint64_t i = 0; i < BATCH; i++) {
				wrong += hit_wrongly(hit, true);
				wrong += hit_wrongly(hit_other, false);
			}
		moved = moving.rounds();
	}
	note("%lu calls, %lu hits, %lu signals, moved %lu times", hits, filter.runs(),
	     Signals::count(SETSIG), moved);
	EXPECT_EQ(wrong, 0, "hits with wrong effects");
	EXPECT_EQ(event.count(), filter.runs(), "hits counted, as many as runs of the program");
	bound.met(std::min(moved, filter.runs()), "hits of a breakpoint that moves", wrong);

	/* The event is still what it was. */
	perf_event_attr attr = attrs[0];
	const uint64_t runs = filter.runs(), sent = Signals::count(SETSIG);

	attr.disabled = 0;
	event.modify(attr);
	hit_times(HITS);
	EXPECT_EQ(filter.runs() - runs, HITS, "runs of the program after the race");
	EXPECT_EQ(Signals::count(SETSIG) - sent, HITS, "signals after the race");
}

/*
 * The lookup copies the value with bpf_prog_active incremented and preemption enabled. The larger
 * the value, the more likely the lookup is preempted during the copy.
 */
TEST("races.bpf_syscall", "C6",
     "a hit in user mode runs its program even if it preempts a task in bpf() on its CPU")
{
	constexpr uint64_t RACES = 400'000, BATCH = 100, LEAST = 20;
	constexpr int SECONDS = 8;
	constexpr size_t VALUE = 1 << 16;
	const int cpu = usable_cpus().front();
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(uint32_t), VALUE, 1, nullptr));
	std::vector<char> value(VALUE);
	Filter filter;
	uint64_t hits = 0, runs = 0, samples = 0, preempted = 0, lookups;

	if (!map.valid())
		setup_failed("bpf_map_create", errno);

	const Bound bound(SECONDS, RACES, LEAST);

	{
		Meanwhile looking_up(cpu, [&](uint64_t) {
			uint32_t key = 0;

			if (bpf_map_lookup_elem(map.get(), &key, value.data()))
				setup_failed("bpf_map_lookup_elem", errno);
		});

		/* Preempt the lookup as soon as the timer fires. */
		run_on(cpu);
		become_realtime(1);

		Event event(breakpoint(hit));
		Ring ring(event);

		filter.returns(1);
		event.enable(filter);
		for (; runs == hits && !bound.reached(hits, preempted); hits += BATCH) {
			const uint64_t before = looking_up.rounds();

			usleep(100);
			preempted += looking_up.rounds() != before;
			ring.forget();
			hit_times(BATCH);
			ring.drain();
			runs = filter.runs();
			samples += ring.samples();
		}
		lookups = looking_up.rounds();
		EXPECT_EQ(event.count(), hits, "hits counted");
	}
	note("%lu of %lu hits lost, %lu calls of bpf()", hits - runs, hits, lookups);
	bound.met(preempted, "preemptions of a task that calls bpf()", runs != hits);
	EXPECT_EQ(runs, hits, "runs of the program");
	EXPECT_EQ(samples, hits, "samples");
}

/* The first thread is in bpf() most of the time, on another CPU. */
TEST("races.bpf_syscall.leader", "C6",
     "a hit of a thread runs its program while the first thread of the process is in bpf()")
{
	constexpr uint64_t RACES = 400'000, BATCH = 100, LEAST = 80;
	constexpr double SECONDS = 8;
	constexpr size_t VALUE = 1 << 16;
	const Cpus cpus = two_cpus();
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(uint32_t), VALUE, 1, nullptr));
	std::vector<char> value(VALUE);
	std::atomic<bool> done = false;
	std::atomic<uint64_t> calls = 0;

	if (!map.valid())
		setup_failed("bpf_map_create", errno);

	std::thread other([&] {
		Filter filter;
		uint64_t hits = 0;

		run_on(cpus.there);

		Event event(breakpoint(hit));
		Ring ring(event);

		filter.returns(1);
		event.enable(filter);

		const Bound bound(SECONDS, RACES, LEAST);

		for (; filter.runs() == hits && !bound.reached(hits, calls); hits += BATCH)
			hit_times(BATCH);
		bound.met(calls, "calls of bpf() during the race", filter.runs() != hits);
		EXPECT_EQ(filter.runs(), hits, "runs of the program");
		EXPECT_EQ(event.count(), hits, "hits counted");
		EXPECT_EQ(misses_of_program(filter.prog_fd()).value_or(0), 0, "misses");
		done = true;
	});

	for (uint32_t key = 0; !done; calls++)
		if (bpf_map_lookup_elem(map.get(), &key, value.data()))
			setup_failed("bpf_map_lookup_elem", errno);
	other.join();
}

static constexpr uint64_t COOKIE = 0xC00C'1E00'0000'0001;

struct CookieCounts {
	uint64_t runs = 0, wrong = 0, attached = 0, met = 0;
};

/*
 * Each program is always attached with the same cookie, which it reads twice, @ns apart. Loading
 * the programs is not part of the race.
 */
static Bound race_cookies(CookieCounts *totals, int there, int seconds, uint64_t races,
			  uint64_t batch, uint64_t ns)
{
	constexpr int PROGRAMS = 3;
	constexpr uint64_t LEAST = 20;
	Filter filters[PROGRAMS] = { Filter(Program::CHECKS_COOKIE), Filter(Program::CHECKS_COOKIE),
				     Filter(Program::CHECKS_COOKIE) };
	Event event(breakpoint(hit));
	Interrupts interrupts(there);
	uint64_t hits = 0, runs = 0, wrong = 0;
	const auto runs_now = [&] {
		uint64_t sum = 0;

		for (const Filter &filter : filters)
			sum += filter.runs();
		return sum;
	};

	for (int i = 0; i < PROGRAMS; i++) {
		filters[i].checks(COOKIE + i, ns);
		filters[i].link(event).close();
	}
	event.enable();

	const Bound bound(seconds, races, LEAST);

	{
		Meanwhile attaching(there, [&](uint64_t round) {
			uint64_t i = round % PROGRAMS, before = filters[i].runs();
			Fd link = must_link(filters[i].prog_fd(), event, COOKIE + i);

			/*
			 * A run is counted when it begins, so the program may still be running when
			 * the next one is attached.
			 */
			for (double end = seconds_now() + 0.1;
			     filters[i].runs() == before && seconds_now() < end;)
				;
		});

		for (; !wrong && !bound.reached(hits, std::min(attaching.rounds(), runs_now()));
		     hits += batch) {
			hit_times(batch);
			for (const Filter &filter : filters)
				wrong += filter.snapshot().wrong_cookies;
		}
		totals->attached += attaching.rounds();
		totals->met += std::min(attaching.rounds(), runs_now());
	}
	runs = runs_now();
	EXPECT_GT(runs, 0, "runs of the programs");
	EXPECT_EQ(event.count(), hits, "hits counted");
	totals->runs += runs;
	totals->wrong += wrong;
	return bound;
}

/* Slow programs still run when the next one is attached. Then make hits as fast as possible. */
static void check_cookies()
{
	const int there = two_cpus().there;
	CookieCounts totals;

	race_cookies(&totals, there, 3, 100'000, 10, 200'000);

	const Bound bound = race_cookies(&totals, there, 16, 1'000'000, 1000, 0);

	note("%lu of %lu runs with a wrong cookie, %lu attachments", totals.wrong, totals.runs,
	     totals.attached);
	EXPECT_EQ(totals.wrong, 0, "runs that saw a cookie of another attachment");
	bound.met(totals.met, "attachments and runs during the race", totals.wrong);
}

/* Takes 19 s, and loads six programs, which takes more than 1 s each with KCSAN. */
static const bool added_cookie = add_test(
	{ "races.cookie", "C7",
	  "while programs replace each other, a program sees only the cookie it was attached with",
	  check_cookies, 120 });
