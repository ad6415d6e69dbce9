// SPDX-License-Identifier: GPL-2.0
/*
 * A profile that is made in the kernel: how often does the CPU execute each instruction of a
 * range? The program counts in a map and returns 0. There is no ring buffer whose size must be
 * chosen, no sample is lost, and the profiler is not woken until it reads the result.
 *
 * Recipe: open a cpu-clock event with a sample_period in nanoseconds on a thread or a CPU. Set
 * exclude_user, exclude_kernel or exclude_idle for what is not of interest. Count in a hash map
 * with the address as its key.
 */
#include <bpf/bpf.h>
#include <fcntl.h>

#include <ctime>
#include <deque>

#include "lib/cpus.h"
#include "lib/hit.h"
#include "lib/ring.h"
#include "lib/sysctl.h"
#include "uses/uses.h"

/* Two routines that spend time, in separate sections whose bounds the linker defines. */
#define SPIN_IN(name)                                                                              \
	extern const char __start_##name[], __stop_##name[];                                       \
	[[gnu::section(#name)]] NOINLINE_NOCLONE static void spin_in_##name()                      \
	{                                                                                          \
		for (int i = 0; i < 200000; i++)                                                   \
			asm volatile("");                                                          \
	}
SPIN_IN(profile_one)
SPIN_IN(profile_two)

struct Range {
	const char *from, *to;
};

static constexpr Range one = { __start_profile_one, __stop_profile_one };
static constexpr Range two = { __start_profile_two, __stop_profile_two };
static constexpr Range nothing = {};

static perf_event_attr cpu_clock()
{
	perf_event_attr attr = software(PERF_COUNT_SW_CPU_CLOCK, 1'000'000); /* 1 ms */

	attr.sample_type = PERF_SAMPLE_IP;
	attr.wakeup_events = 1;
	attr.exclude_hv = 1;
	return attr;
}

/*
 * Expects that nothing wakes the profiler while this object lives. A throttled clock writes a
 * record to the ring, however, and may send a signal for it.
 */
class NoWakeups {
public:
	~NoWakeups()
	{
		EXPECT_LE(Signals::count(SETSIG), throttles, "signals that woke the profiler");
	}

	static inline uint64_t throttles; /* PERF_RECORD_THROTTLE records in all rings */

private:
	/* Ten times the rate of the clock, because ticks can be late. */
	EnoughSampling enough_{ 10'000 };
	Signals signals_{ SETSIG };
};

class Profiler {
public:
	/* The results so far. */
	const volatile auto *found() const { return uses_.globals(); }

	/*
	 * Profiles the calling thread, or all tasks on @cpu. The ring and the signal would show a
	 * hit that is delivered.
	 */
	Profiler(const Range &range, const perf_event_attr &attr, int cpu = -1)
		: event_(attr, cpu < 0 ? 0 : -1, cpu)
		, ring_(event_)
	{
		uses_.globals()->profile_from = reinterpret_cast<uintptr_t>(range.from);
		uses_.globals()->profile_to = reinterpret_cast<uintptr_t>(range.to);
		event_.must_attach(uses_);
		event_.async(SETSIG, gettid());
	}
	/*
	 * No other profiler may be running now: its hit in the bpf(2) that reads the map would be a
	 * miss, which sends a signal.
	 */
	~Profiler()
	{
		event_.disable();
		ring_.drain();
		EXPECT_EQ(ring_.samples(), 0, "samples in the ring buffer");

		const uint64_t throttles = ring_.records(PERF_RECORD_THROTTLE);

		if (throttles)
			note("the clock was throttled %lu times", throttles);
		NoWakeups::throttles += throttles;
		EXPECT_LE(ring_.poll_ready(), throttles, "times that poll() was ready");
		EXPECT_EQ(in_map(), found()->profile_inside,
			  "counts in the map, as many as hits in the range");
	}
	Profiler(const Profiler &) = delete;

	void start() { event_.enable(); }
	void stop() { event_.disable(); }

private:
	/* The sum of all counts in the map, minus 1 for each address outside of the range. */
	uint64_t in_map() const
	{
		const int map = bpf_map__fd(uses_->maps.profile_counts);
		uint64_t sum = 0, count, address;

		for (const uint64_t *last = nullptr; !bpf_map_get_next_key(map, last, &address);
		     last = &address) {
			bpf_map_lookup_elem(map, &address, &count);
			sum += count;
			sum -= address < found()->profile_from || address >= found()->profile_to;
		}
		return sum;
	}

	Uses uses_{ "profile" };
	Event event_;
	Ring ring_;
};

static constexpr uint64_t ENOUGH = 10; /* hits in the expected place */

/* Spends some time in each of the routines and in the kernel. */
static void spend_time()
{
	static char buffer[1 << 16];
	static const Fd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));

	spin_in_profile_one();
	spin_in_profile_two();
	for (int i = 0; i < 3; i++)
		if (read(zero.get(), buffer, sizeof(buffer)) < 0 && errno != EINTR)
			setup_failed("read of /dev/zero", errno);
}

TEST("uses.profile", "C1", "a profile is counted in the kernel and never wakes the profiler")
{
	NoWakeups user_space;
	Profiler profiler(one, cpu_clock());

	profiler.start();
	while (profiler.found()->profile_inside < ENOUGH)
		spend_time();
}

TEST("uses.profile.two", "C1", "two concurrent profilers neither see nor disturb each other")
{
	NoWakeups user_space;
	Profiler first(one, cpu_clock());
	Profiler second(two, cpu_clock());

	first.start();
	second.start();
	while (first.found()->profile_inside < ENOUGH || second.found()->profile_inside < ENOUGH)
		spend_time();

	/* The second profiler stops, and its results must not change while the first continues. */
	second.stop();

	const uint64_t by_first = first.found()->profile_inside,
		       by_second = second.found()->profile_inside;

	while (first.found()->profile_inside < by_first + ENOUGH)
		spend_time();
	first.stop();
	EXPECT_EQ(second.found()->profile_inside, by_second, "hits found by the stopped profiler");
}

/* No hit may be in the mode that @attr excludes, although another profiler has hits in it. */
static void check_excluded(const perf_event_attr &attr)
{
	NoWakeups user_space;
	Profiler all(nothing, cpu_clock()), some(nothing, attr);
	const volatile auto *every = all.found(), *found = some.found();

	all.start();
	some.start();
	while (every->profile_kernel < ENOUGH || every->profile_user < ENOUGH ||
	       found->profile_kernel + found->profile_user < ENOUGH)
		spend_time();
	all.stop();
	some.stop();
	EXPECT_EQ(attr.exclude_kernel ? found->profile_kernel : found->profile_user, 0,
		  "hits found in the excluded mode");
}

TEST("uses.profile.exclude_kernel", "C1", "with exclude_kernel the program sees only user mode")
{
	perf_event_attr attr = cpu_clock();

	attr.exclude_kernel = 1;
	check_excluded(attr);
}

TEST("uses.profile.exclude_user", "C1", "with exclude_user the program sees only kernel mode")
{
	perf_event_attr attr = cpu_clock();

	attr.exclude_user = 1;
	check_excluded(attr);
}

TEST("uses.profile.exclude_idle", "C1", "with exclude_idle the program never sees the idle task")
{
	constexpr int SECONDS = 8; /* on a busy machine the CPUs are seldom idle */
	NoWakeups user_space;
	perf_event_attr attr = cpu_clock();
	std::deque<Profiler> every, busy;
	uint64_t idle = 0;

	/* On all CPUs: some may be busy, or have a clock that stops while they are idle. */
	attr.exclude_idle = 1;
	for (int cpu : usable_cpus()) {
		every.emplace_back(nothing, cpu_clock(), cpu);
		busy.emplace_back(nothing, attr, cpu);
	}
	for (auto *profilers : { &every, &busy })
		for (Profiler &profiler : *profilers)
			profiler.start();

	/* Sleep, so that this thread does not keep a CPU busy. */
	for (const time_t end = time(nullptr) + SECONDS; idle < 3;) {
		if (time(nullptr) > end)
			skip("no CPU was idle within %d s", SECONDS);
		usleep(10000);
		idle = 0;
		for (Profiler &profiler : every)
			idle += profiler.found()->profile_idle;
	}
	for (auto *profilers : { &every, &busy })
		for (Profiler &profiler : *profilers)
			profiler.stop();
	for (Profiler &profiler : busy)
		EXPECT_EQ(profiler.found()->profile_idle, 0, "hits found in the idle task");
}
