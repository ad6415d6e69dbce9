// SPDX-License-Identifier: GPL-2.0
/* Overflows whose program cannot run because it is already running: C6. */
#include "lib/program.h"
#include "tests/common.h"

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
	/* Watch one byte, so that a read is exactly one hit, however the kernel copies. */
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
 * Each access is a hit. Its program reads the word and rejects the hit. The read is another hit,
 * and a miss, because the program is already running. Before 6.10 a miss has all effects except the
 * sample; since 6.10 it has none.
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
	Filter &filter() { return filter_; }
	static void access(uint64_t value) { watched = value; }
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
	uint64_t samples()
	{
		ring_.drain();
		return ring_.samples();
	}
	/* The number of effects that this many misses have. */
	static uint64_t delivered(uint64_t misses) { return kernel_before(6, 10) ? misses : 0; }

private:
	static perf_event_attr watchpoint(void (*set)(perf_event_attr &attr))
	{
		/* Watch one byte, so that a read is exactly one hit, however the kernel copies. */
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

TEST("misses.signal", "C6",
     "before 6.10 a miss sends its signal, as on stock; since 6.10 it does not")
{
	Signals signals({ SETSIG });
	Missing missing;

	missing.event().async(SETSIG, gettid());
	missing.event().enable();
	EXPECT_EQ(missing.access_times(HITS), HITS, "runs of the program");
	EXPECT_EQ(Signals::count(SETSIG), Missing::delivered(HITS), "signals");
}

TEST("misses.sigtrap", "C6",
     "before 6.10 a miss raises SIGTRAP, as on stock; since 6.10 it does not")
{
	Signals signals({ SIGTRAP });
	Missing missing([](perf_event_attr &attr) { attr = with_sigtrap(attr); });

	missing.event().enable();
	EXPECT_EQ(missing.access_times(HITS), HITS, "runs of the program");
	EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), Missing::delivered(HITS), "SIGTRAPs");
}

/*
 * On stock, a rejected hit counts against the limit, too, and then its program causes a miss. So an
 * even limit is used up by a miss.
 */
TEST("misses.limit", "C6",
     "before 6.10 a miss counts against the limit, as on stock; since 6.10 it does not")
{
	constexpr int EVEN = 4;
	Setup limited;

	limited.limit = true;

	/* True only without the series. */
	const bool rejected_uses_limit = observe(limited, rejects).limit_used;
	Signals signals({ SETSIG });
	Missing missing;

	missing.event().async(SETSIG, gettid());
	missing.event().must_refresh(EVEN);

	uint64_t runs = missing.access_times(HITS);

	if (Missing::delivered(1))
		EXPECT_EQ(runs, rejected_uses_limit ? EVEN / 2 : EVEN,
			  "runs of the program until misses use up the limit");
	else
		EXPECT_EQ(runs, HITS, "runs of the program");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), Missing::delivered(1), "POLL_HUPs");
}

/*
 * While the program of an accepted hit runs, a miss uses up the limit. The hit must not count
 * against the limit as well: it would become negative, and REFRESH would raise it to 0, which means
 * no limit.
 */
TEST("misses.limit.last", "C10",
     "a hit does not make the limit negative if a miss uses it up while the program runs")
{
	constexpr uint64_t REFRESHES = 3, ACCEPTED = 1;
	Missing missing;

	missing.filter().returns_if(1, FILTER_VALUE, ACCEPTED);
	for (uint64_t i = 1; i <= REFRESHES; i++) {
		missing.event().must_refresh(1);
		for (uint64_t n = 0; n < HITS; n++)
			missing.access(ACCEPTED);
		EXPECT_EQ(missing.event().count(), 2 * i, "hits counted, misses included");
	}
}

TEST("misses.limit.hup", "C2",
     "POLL_HUP is sent once if a miss uses up the limit and the program then accepts the hit")
{
	constexpr uint64_t ACCEPTED = 1;
	Signals signals({ SETSIG });
	Missing missing;

	missing.filter().returns_if(1, FILTER_VALUE, ACCEPTED);
	missing.event().async(SETSIG, gettid());
	missing.event().must_refresh(1);
	missing.access(ACCEPTED);
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");
	EXPECT_EQ(Signals::count(SETSIG), 1, "signals");
	EXPECT_EQ(missing.samples(), 1, "samples");
}

/*
 * Test each CPU: an earlier miss, even one in another test, could have left a per-CPU counter
 * raised.
 */
TEST("misses.none", "C6", "a hit whose program runs is not a miss, whatever the program returns")
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
