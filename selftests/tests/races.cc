// SPDX-License-Identifier: GPL-2.0
/* Hits that race with attach, detach, fork or bpf(2) in other tasks: C6, C7, C8. */
#include <bpf/bpf.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "harness/race.h"
#include "lib/clock.h"
#include "lib/kernel.h"
#include "lib/program.h"
#include "tests/common.h"

/* A thread on @cpu that calls @round(number) repeatedly until it is destroyed. */
class Meanwhile {
public:
	template <typename Round>
	Meanwhile(int cpu, Round round)
		: thread_([this, cpu, round] {
			run_on(cpu);
			while (!stop_.load(std::memory_order_relaxed)) {
				round(rounds_.load(std::memory_order_relaxed));
				rounds_.fetch_add(1, std::memory_order_relaxed);
			}
		})
	{
		while (!rounds())
			sched_yield();
	}
	~Meanwhile()
	{
		stop_ = true;
		thread_.join();
	}
	uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

private:
	std::atomic<bool> stop_ = false;
	std::atomic<uint64_t> rounds_ = 0;
	std::thread thread_;
};

/* Frequent timer interrupts on @cpu, which make the interrupted code take longer. */
class Interrupts {
public:
	explicit Interrupts(int cpu)
		: clock_(software(PERF_COUNT_SW_CPU_CLOCK, 20'000), -1, cpu)
	{
		clock_.enable();
	}

private:
	Event clock_;
};

/*
 * A race that was not lost proves something only if it was run: the two sides must have met this
 * often. On a crowded host ten times as many were seen.
 */
constexpr uint64_t MEETINGS = 20;

/* A CPU for the hits, and one for what they race with. */
struct Cpus {
	int here, there;
};

static Cpus two_cpus()
{
	std::vector<int> cpus = usable_cpus();

	if (cpus.size() < 2)
		skip("the test needs two CPUs");
	run_on(cpus[0]);
	return { cpus[0], cpus[1] };
}

/* @batch(n) hits n times, and returns how many of the hits were not delivered correctly. */
template <typename Batch> static void race_detach(const Event &event, int there, Batch batch)
{
	constexpr uint64_t RACES = 4'000'000, BATCH = 1000;
	/* A busy host may run a guest's CPUs alternately for seconds, and then nothing races. */
	constexpr int SECONDS = 15;
	Filter filter;
	uint64_t hits = 0, lost = 0, detached;

	filter.returns(1);
	filter.link(event).close();
	{
		Meanwhile detaching(there,
				    [&](uint64_t) { must_link(filter.prog_fd(), event).close(); });

		for (Bound bound(SECONDS, RACES); !lost && !bound.reached(hits); hits += BATCH)
			lost = batch(BATCH);
		detached = detaching.rounds();
	}
	note("%lu of %lu hits lost, %lu detaches", lost, hits, detached);
	EXPECT_EQ(lost, 0, "hits lost");
	if (!lost)
		EXPECT_GE(detached, MEETINGS, "detaches meanwhile");
	EXPECT_EQ(event.count(), hits, "hits counted");
}

TEST("races.detach.samples", "C6", "a hit that races with a detach leaves its sample")
{
	const int there = two_cpus().there;
	perf_event_attr attr = breakpoint(hit);

	/* For the fastest possible hits: no wakeups, and the ring never fills up. */
	attr.sample_type = 0;
	attr.wakeup_events = 0;

	Event event(attr);
	Ring ring(event);

	event.enable();
	race_detach(event, there, [&](uint64_t times) {
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
	race_detach(event, there, [&](uint64_t times) { return signals_missed(SETSIG, times); });
}

TEST("races.detach.sigtrap", "C6", "a hit that races with a detach raises SIGTRAP exactly once")
{
	const int there = two_cpus().there;
	Signals signals({ SIGTRAP });
	Event event(with_sigtrap(breakpoint(hit)));

	event.enable();
	race_detach(event, there, [&](uint64_t times) { return signals_missed(SIGTRAP, times); });
}

/*
 * Opening an event on a running task sends an IPI that schedules out the other events of the task
 * for a moment, and that may be handled before the irq_work of a hit. A slow program makes it
 * likely that both are pending.
 */
TEST("races.opened.sigtrap", "C6",
     "a hit that uses up the limit raises SIGTRAP while another event is opened on the task")
{
	constexpr uint64_t RACES = 20'000;
	constexpr int SECONDS = 4, BLOCKS = 4;
	static const char block[FILTER_BLOCK] = {};
	const int there = two_cpus().there;
	const pid_t tid = gettid();
	perf_event_attr others = software(PERF_COUNT_SW_DUMMY);
	Signals signals({ SIGTRAP });
	Event event(with_sigtrap(breakpoint(hit)));
	Filter filter(Program::WORKS);
	uint64_t hits = 0, lost = 0, opened;

	others.disabled = 0;
	filter.returns(1);
	filter.works(block, BLOCKS);
	event.must_attach(filter);
	{
		Meanwhile opening(there, [&](uint64_t) { open_event(others, tid); });

		for (Bound bound(SECONDS, RACES); !lost && !bound.reached(hits); hits++) {
			event.must_refresh(1);
			lost = signals_missed(SIGTRAP, 1);
			hit(0); /* Not counted, because the event is off. */
		}
		opened = opening.rounds();
	}
	note("%lu of %lu hits lost, %lu events opened", lost, hits, opened);
	EXPECT_EQ(lost, 0, "hits lost");
	if (!lost)
		EXPECT_GE(opened, MEETINGS, "events opened meanwhile");
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
	/* Calls @enable, hits, and disables the event on the other CPU while the program runs. */
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

/* The first round is not checked, because it may fault in code of the test as well. */
constexpr int DISABLED_ROUNDS = 20;

TEST("races.disabled.sigtrap", "C6",
     "an accepted hit raises SIGTRAP even if its event is disabled while the program runs")
{
	Signals signals({ SIGTRAP });
	Faults faults(two_cpus().there, true);

	for (int round = 0; round < DISABLED_ROUNDS; round++) {
		const uint64_t runs = faults.runs(), traps = Signals::count(SIGTRAP);

		faults.disabled_hit([&] { faults.event().enable(); });
		if (!round)
			continue;
		EXPECT_EQ(faults.runs() - runs, 1, "runs of the program");
		EXPECT_EQ(Signals::count(SIGTRAP) - traps, 1, "SIGTRAPs");
	}
}

TEST("races.disabled.limit", "C10",
     "an event that is disabled while a hit uses up its limit can be re-enabled by REFRESH")
{
	constexpr int MORE = 3;
	Faults faults(two_cpus().there);

	for (int round = 0; round < DISABLED_ROUNDS; round++) {
		const uint64_t runs = faults.runs();

		faults.disabled_hit([&] { faults.event().must_refresh(1); });
		faults.event().must_refresh(MORE);
		usleep(1000); /* The event is scheduled out and in. */
		for (int i = 0; i <= MORE; i++)
			faults.hit();
		if (round)
			EXPECT_EQ(faults.runs() - runs, 1 + MORE, "runs of the program");
	}
}

/*
 * A hit uses up the limit, and another CPU sees its sample before the event is disabled. The
 * REFRESH or ENABLE on that CPU must take effect: the next hit must be counted.
 */
static void check_turned_on_beside(bool by_refresh)
{
	constexpr int SECONDS = 4;
	const Bound bound(SECONDS, 100'000);
	const std::vector<int> cpus = usable_cpus();
	std::atomic<uint64_t> turned_on = 0;
	uint64_t hits = 0, counted = 0;

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	run_on(cpus[0]);

	Event event(breakpoint(hit));
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
		seen = head;
		turned_on++;
		ring.drain();
		ring.forget();
	});
	const auto hit_and_wait = [&] {
		const uint64_t before = turned_on;

		hit(hits++);
		counted = event.count();
		while (counted == hits && turned_on == before)
			;
	};

	event.must_refresh(1);
	while (counted == hits && !bound.reached(hits)) {
		hit_and_wait();
		/* After ENABLE the event has no limit. */
		if (!by_refresh && counted == hits) {
			hit_and_wait();
			event.must_refresh(1);
		}
	}
	note("%llu hits", (unsigned long long)hits);
	EXPECT_EQ(counted, hits, "hits counted by an event that was enabled again");
}

TEST_OF("races.refresh", "C10",
	"a REFRESH on another CPU that races with the hit that uses up the limit takes effect",
	check_turned_on_beside(true))

TEST_OF("races.enable", "C10",
	"an ENABLE on another CPU that races with the hit that uses up the limit takes effect",
	check_turned_on_beside(false))

/*
 * The exit of a child wakes up tasks that poll the parent's event. It must neither repeat nor drop
 * the signal of a hit whose irq_work is pending.
 */
TEST("races.exit", "C6",
     "a hit sends its signal exactly once while children that inherited the event exit")
{
	constexpr uint64_t RACES = 400'000;
	constexpr int SECONDS = 8, ENOUGH_MILLISECONDS = 200;
	/*
	 * On PREEMPT_RT the thread that sends the signal may sleep on a lock that the child holds,
	 * and all hits until then share one signal. So wait for the signal of each hit.
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

	for (Bound bound(SECONDS, RACES); Signals::count(SETSIG) == hits && !bound.reached(hits);) {
		hit_times(batch);
		hits += batch;
		/* An exiting child may be the one that sends a signal. */
		for (int i = 0; Signals::count(SETSIG) < hits && i < ENOUGH_MILLISECONDS; i++)
			usleep(1000);
	}
	note("%lu signals of %lu hits, %lu exits", Signals::count(SETSIG), hits, ended.load());
	EXPECT_EQ(Signals::count(SETSIG), hits, "signals");
	EXPECT_GT(ended.load(), 0, "children that have exited");
}

TEST("races.attach", "C8",
     "of two concurrent attachments one succeeds, and the other fails with EEXIST until the "
     "first detaches")
{
	constexpr uint64_t ROUNDS = 100'000;
	constexpr int SECONDS = 8;
	const int there = two_cpus().there;
	Filter filter;
	Event event(breakpoint(hit));
	std::atomic<uint64_t> attached = 0, refused = 0, together = 0, having = 0, failed = 0;
	auto round = [&](uint64_t) {
		int err;
		Fd link = filter.link(event, &err);

		if (link.valid()) {
			together += having++ > 0;
			attached++;
			/* Give a thread that attached at the same time a chance to return. */
			for (int i = 0; i < 500; i++)
				asm volatile("");
			having--;
		} else {
			(err == EEXIST ? refused : failed)++;
		}
	};

	{
		Meanwhile other(there, round);

		for (Bound bound(SECONDS, ROUNDS); !together && !bound.reached(attached + refused);)
			round(0);
	}
	note("%lu attached, %lu refused", attached.load(), refused.load());
	if (!together)
		EXPECT_GE(attached.load(), MEETINGS, "attachments");
	EXPECT_EQ(together, 0, "attachments that succeeded while the other one was attached");
	EXPECT_EQ(failed, 0, "attachments that failed with an errno other than EEXIST");
}

/*
 * The lookup copies the value with bpf_prog_active incremented and preemption enabled. The larger
 * the value, the more likely the lookup is preempted during the copy.
 */
TEST("races.bpf_syscall", "C6",
     "a hit in user mode runs its program although another task is in bpf() on that CPU")
{
	constexpr uint64_t RACES = 400'000, BATCH = 100;
	constexpr size_t VALUE = 1 << 16;
	const int cpu = usable_cpus().front();
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(uint32_t), VALUE, 1, nullptr));
	std::vector<char> value(VALUE);
	Filter filter;
	uint64_t hits = 0, runs = 0, samples = 0, lookups;

	if (!map.valid())
		setup_failed("bpf_map_create", errno);

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
		for (Bound bound(8, RACES); runs == hits && !bound.reached(hits); hits += BATCH) {
			usleep(100);
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
	if (runs == hits)
		EXPECT_GE(lookups, MEETINGS, "calls of bpf() meanwhile");
	EXPECT_EQ(runs, hits, "runs of the program");
	EXPECT_EQ(samples, hits, "samples");
}

/* The first thread is in bpf() most of the time, on another CPU. */
TEST("races.bpf_syscall.leader", "C6",
     "hits of a thread run their program while the first thread of its process is in bpf()")
{
	constexpr uint64_t RACES = 20'000, BATCH = 100;
	constexpr double SECONDS = 2;
	constexpr size_t VALUE = 1 << 16;
	const Cpus cpus = two_cpus();
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(uint32_t), VALUE, 1, nullptr));
	std::vector<char> value(VALUE);
	std::atomic<bool> done = false;
	uint64_t calls = 0;

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
		for (Bound bound(SECONDS, RACES); filter.runs() == hits && !bound.reached(hits);
		     hits += BATCH)
			hit_times(BATCH);
		EXPECT_EQ(filter.runs(), hits, "runs of the program");
		EXPECT_EQ(event.count(), hits, "hits counted");
		EXPECT_EQ(misses_of_program(filter.prog_fd()).value_or(0), 0, "misses");
		done = true;
	});

	for (uint32_t key = 0; !done; calls++)
		if (bpf_map_lookup_elem(map.get(), &key, value.data()))
			setup_failed("bpf_map_lookup_elem", errno);
	other.join();
	note("%lu calls of bpf()", calls);
	EXPECT_GE(calls, MEETINGS, "calls of bpf() meanwhile");
}

static uint64_t misses(const Filter &filter)
{
	const auto misses = misses_of_program(filter.prog_fd());

	if (!misses)
		unavailable("the kernel has no recursion_misses (they came with 5.12)");
	return *misses;
}

TEST("misses.nested", "C6", "hits caused by the program's own reads are counted as its misses")
{
	static volatile uint64_t watched;
	/* Only one byte, so that a read is one hit however the kernel copies. */
	perf_event_attr attr = breakpoint(Access::READ_WRITE, &watched, 1);
	Filter filter;

	attr.exclude_kernel = 0;

	Event event(attr);
	Ring ring(event);

	/* The program reads the watched word, in kernel mode. */
	need_kernel_hits();
	filter.returns_if(1, FILTER_VALUE, 1);
	event.must_attach(filter);
	EXPECT_EQ(misses(filter), 0, "misses before the first hit");
	event.enable();
	for (uint64_t i = 0; i < HITS; i++)
		watched = i % 2;
	event.disable();
	ring.drain();

	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(event.count(), 2 * HITS, "hits counted, nested ones included");
	EXPECT_EQ(misses(filter), event.count() - filter.runs(), "misses");
	EXPECT_EQ(ring.samples(), HITS / 2, "samples");
}

/*
 * Each access is a hit, whose program reads the word and rejects. The read is another hit, for
 * which the program cannot run: a miss. Before 6.10 a miss has all effects but the sample; since
 * 6.10 it has none.
 */
class Missing {
public:
	explicit Missing(void (*set)(perf_event_attr &attr) = [](perf_event_attr &) {})
		: event_(watchpoint(set))
		, ring_(event_)
	{
		need_kernel_hits();
		filter_.returns_if(1, FILTER_VALUE, HITS);
		event_.must_attach(filter_);
	}
	Event &event() { return event_; }
	/* Accesses the word, and returns the number of runs, which is also the number of misses. */
	uint64_t access_times(uint64_t times)
	{
		for (uint64_t i = 0; i < times; i++)
			watched = i;
		event_.disable();
		ring_.drain();
		EXPECT_EQ(ring_.samples(), 0, "samples");
		EXPECT_EQ(event_.count(), 2 * filter_.runs(), "hits counted, misses included");
		return filter_.runs();
	}
	/* The number of effects that so many misses have. */
	static uint64_t delivered(uint64_t misses) { return kernel_before(6, 10) ? misses : 0; }

private:
	static perf_event_attr watchpoint(void (*set)(perf_event_attr &attr))
	{
		/* Only one byte, so that a read is one hit however the kernel copies. */
		perf_event_attr attr = breakpoint(Access::READ_WRITE, &watched, 1);

		attr.exclude_kernel = 0;
		set(attr);
		return attr;
	}

	static volatile uint64_t watched;
	Filter filter_;
	Event event_;
	Ring ring_;
};

volatile uint64_t Missing::watched;

TEST("misses.signal", "C6", "a miss sends its signal where the stock kernel does (before 6.10)")
{
	Signals signals({ SETSIG });
	Missing missing;

	missing.event().async(SETSIG, gettid());
	missing.event().enable();
	EXPECT_EQ(missing.access_times(HITS), HITS, "runs of the program");
	EXPECT_EQ(Signals::count(SETSIG), Missing::delivered(HITS), "signals");
}

TEST("misses.sigtrap", "C6", "a miss raises SIGTRAP where the stock kernel does (before 6.10)")
{
	Signals signals({ SIGTRAP });
	Missing missing([](perf_event_attr &attr) { attr = with_sigtrap(attr); });

	missing.event().enable();
	EXPECT_EQ(missing.access_times(HITS), HITS, "runs of the program");
	EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), Missing::delivered(HITS), "SIGTRAPs");
}

/* On stock, rejected hits use up the limit, too. If it is even, the last one is taken by a miss. */
TEST("misses.limit", "C6",
     "a miss takes one from the limit where the stock kernel does (before 6.10)")
{
	constexpr int EVEN = 4;
	Setup limited;

	limited.limit = true;

	/* Without the series. */
	const bool rejected_takes = observe(limited, rejects).taken;
	Signals signals({ SETSIG });
	Missing missing;

	missing.event().async(SETSIG, gettid());
	missing.event().must_refresh(EVEN);

	uint64_t runs = missing.access_times(HITS);

	if (Missing::delivered(1))
		EXPECT_EQ(runs, rejected_takes ? EVEN / 2 : EVEN,
			  "runs of the program until misses use up the limit");
	else
		EXPECT_EQ(runs, HITS, "runs of the program");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), Missing::delivered(1), "POLL_HUPs");
}

/*
 * On each CPU, because an earlier miss, even of another test, could leave a per-CPU counter behind.
 */
TEST("misses.none", "C6", "hits whose program runs are not counted as misses, whatever it returns")
{
	for (int cpu : usable_cpus()) {
		run_on(cpu);
		for (uint32_t verdict : { 0, 1 }) {
			Filter filter;
			Event event(breakpoint(hit));

			filter.returns(verdict);
			event.enable(filter);
			hit_times(HITS);
			EXPECT_EQ(filter.runs(), HITS, "runs of the program");
			EXPECT_EQ(misses(filter), 0, "misses");
		}
	}
}

static constexpr uint64_t COOKIE = 0xC00C'1E00'0000'0001;

/* @body hits HITS times in a child of the task that has the event. */
template <typename Body> static void check_inherited_cookie(Body body)
{
	Filter filter(Program::CHECKS_COOKIE);
	int err;
	Event event(inherited(breakpoint(hit)));
	/*
	 * If all events of a task were inherited, the kernel could swap the contexts of parent and
	 * child, and the child would hit the parent's event, whose cookie is always right.
	 */
	Event not_inherited(breakpoint(hit_other));
	Fd link = filter.link(event, &err, COOKIE);

	if (!link.valid())
		setup_failed("bpf_link_create", err);
	filter.checks(COOKIE, 0);
	event.enable();
	hit_times(HITS);
	EXPECT_EQ(filter.look().wrong_cookies, 0, "runs for the parent that saw another cookie");
	body();
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program");
	EXPECT_EQ(filter.look().wrong_cookies, 0, "runs that saw another cookie");
}

TEST("cookie.inherited.process", "C7", "a forked child inherits the cookie with the program")
{
	check_inherited_cookie([] { in_child([] { hit_times(HITS); }); });
}

TEST("cookie.inherited.thread", "C7", "a thread inherits the cookie with the program")
{
	check_inherited_cookie([] { std::thread([] { hit_times(HITS); }).join(); });
}

TEST("cookie.inherited.grandchild", "C7", "a grandchild inherits the cookie with the program")
{
	check_inherited_cookie([] {
		Child child([] {
			Child grandchild([] {
				hit_times(HITS);
				return 0;
			});

			return grandchild.wait();
		});

		EXPECT_STATUS(child.wait(), 0, "the child");
	});
}

struct Looked {
	uint64_t runs = 0, wrong = 0, attached = 0;
};

/* Each program is always attached with the same cookie, and takes @ns between two looks at it. */
static void race_cookies(Looked *looked, int there, uint64_t races, int seconds, uint64_t batch,
			 uint64_t ns)
{
	constexpr int PROGRAMS = 3;
	Filter filters[PROGRAMS] = { Filter(Program::CHECKS_COOKIE), Filter(Program::CHECKS_COOKIE),
				     Filter(Program::CHECKS_COOKIE) };
	Event event(breakpoint(hit));
	Interrupts interrupts(there);
	uint64_t hits = 0, runs = 0, wrong = 0;

	for (int i = 0; i < PROGRAMS; i++) {
		filters[i].checks(COOKIE + i, ns);
		filters[i].link(event).close();
	}
	event.enable();
	{
		Meanwhile attaching(there, [&](uint64_t round) {
			uint64_t i = round % PROGRAMS, before = filters[i].runs();
			Fd link = must_link(filters[i].prog_fd(), event, COOKIE + i);

			/*
			 * A run is counted when it begins, so it may still run when the next is
			 * attached.
			 */
			for (double end = seconds_now() + 0.1;
			     filters[i].runs() == before && seconds_now() < end;)
				;
		});

		for (Bound bound(seconds, races); !wrong && !bound.reached(hits); hits += batch) {
			hit_times(batch);
			for (const Filter &filter : filters)
				wrong += filter.look().wrong_cookies;
		}
		looked->attached += attaching.rounds();
	}
	for (const Filter &filter : filters)
		runs += filter.runs();
	EXPECT_GT(runs, 0, "runs of the programs");
	EXPECT_EQ(event.count(), hits, "hits counted");
	looked->runs += runs;
	looked->wrong += wrong;
}

/* First slow programs, which still run when the next one is attached, then the fastest hits. */
static void check_cookies()
{
	const int there = two_cpus().there;
	Looked looked;

	race_cookies(&looked, there, 100'000, 3, 10, 200'000);
	race_cookies(&looked, there, 1'000'000, 16, 1000, 0);
	note("%lu of %lu runs with a wrong cookie, %lu attachments", looked.wrong, looked.runs,
	     looked.attached);
	EXPECT_EQ(looked.wrong, 0, "runs that saw another cookie than that of their attachment");
}

/* Takes 19 s, and loads six programs, which takes more than 1 s each with KCSAN. */
static const bool added_cookie =
	add_test({ "races.cookie", "C7",
		   "a program sees only the cookie of its own attachment while others replace it",
		   check_cookies, 120 });

/*
 * Forks with CLONE_FILES, because a child with its own descriptors would keep a link open that its
 * parent closes. With @taken, an id in use, the fork fails, but only after the child has inherited
 * the events: the cheapest way to inherit repeatedly.
 */
static pid_t fork_sharing_files(const pid_t *taken)
{
	clone_args args = {};

	args.flags = CLONE_FILES | (taken ? CLONE_VM | CLONE_FS : 0);
	args.exit_signal = SIGCHLD;
	args.set_tid = reinterpret_cast<uintptr_t>(taken);
	args.set_tid_size = taken ? 1 : 0;
	return syscall(SYS_clone3, &args, sizeof(args));
}

static void fork_on(int seconds)
{
	constexpr uint64_t ONE_FOR_GOOD = 64;
	const pid_t taken = getpid();
	uint64_t forks = 0;

	for (Bound bound(seconds); !bound.reached(forks); forks++) {
		bool for_good = forks % ONE_FOR_GOOD == 0;
		pid_t pid = fork_sharing_files(for_good ? nullptr : &taken);

		if (!pid) {
			hit_times(1);
			_exit(0);
		}
		if (for_good ? pid < 0 : errno != EEXIST)
			setup_failed("clone3", errno);
		if (for_good)
			waitpid(pid, nullptr, 0);
	}
	note("%lu forks", forks);
}

static constexpr int FORK_SECONDS = 10;

enum class Forker {
	TASK, /* the task of the event, which forks with the mutex of its context held */
	CHILD, /* a child, which holds another mutex */
};

static void race_fork(Forker forker)
{
	const Cpus cpus = two_cpus();
	Event event(inherited(breakpoint(hit)));
	/* Slow down the forks, so that a detach fits between two of their steps. */
	Interrupts interrupts(cpus.here);
	uint64_t detached;

	Filter().link(event).close();
	event.enable();
	{
		std::optional<Child> child;

		/* Before there is a link, whose descriptor the child would inherit. */
		if (forker == Forker::CHILD)
			child.emplace([] {
				fork_on(FORK_SECONDS);
				return 0;
			});

		/*
		 * Only the link holds the program, so a program that is inherited too late is
		 * freed.
		 */
		Meanwhile detaching(cpus.there, [&](uint64_t) {
			Fd prog = load_least(1);
			Fd link = must_link(prog.get(), event);

			prog.close();
		});

		if (child)
			EXPECT_STATUS(child->wait(), 0, "the child");
		else
			fork_on(FORK_SECONDS);
		detached = detaching.rounds();
	}
	note("%lu detaches", detached);
}

TEST_OF("oops.detach_fork.task", "C8", "closing a link is safe while the task of its event forks",
	race_fork(Forker::TASK))

TEST_OF("oops.detach_fork.child", "C8",
	"closing a link is safe while a child that inherited the event forks",
	race_fork(Forker::CHILD))
