// SPDX-License-Identifier: GPL-2.0
/*
 * C1, C2 and C3 for each kind and length of breakpoint: execute, write, and read or write. C4: a
 * lone breakpoint is never throttled.
 */
#include "tests/common.h"

namespace {
volatile union Watched {
	uint8_t one;
	uint16_t two;
	uint32_t four;
	uint64_t eight;
	uint32_t fours[3];
} watched;
} // namespace

/* Each is a single instruction that accesses exactly the watched bytes. */
template <auto member> static void write_to(uint64_t value)
{
	watched.*member = value;
}

template <auto member> static void read_from(uint64_t)
{
	/* clang 14 ignores volatile in an access through a pointer to member. */
	const volatile auto &place = watched.*member;
	[[maybe_unused]] const auto value = place;
}

static const struct {
	size_t bytes;
	void (*write)(uint64_t);
	void (*read)(uint64_t);
} lengths[] = {
	{ 1, write_to<&Watched::one>, read_from<&Watched::one> },
	{ 2, write_to<&Watched::two>, read_from<&Watched::two> },
	{ 4, write_to<&Watched::four>, read_from<&Watched::four> },
	{ 8, write_to<&Watched::eight>, read_from<&Watched::eight> },
};

/* An action, and whether it hits the breakpoint. */
struct Step {
	void (*action)(uint64_t);
	bool hits;
};

static void check(const perf_event_attr &attr, std::initializer_list<Step> steps, bool accept)
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(attr);
	Ring ring(event);
	uint64_t hits = 0;

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	for (const Step &step : steps) {
		for (uint64_t i = 0; i < HITS; i++)
			step.action(i);
		if (step.hits)
			hits += HITS;
		ring.drain();
		expect_hits(event, filter, hits);
		expect_delivered(ring, accept ? hits : 0);
	}
}

static void add_pair(const std::string &name, const std::string &what,
		     const std::function<void(bool accept)> &body)
{
	add_test({ name + ".rejected", "C1",
		   "rejected hits on " + what + " are counted and have no side effect",
		   [body] { body(false); } });
	add_test({ name + ".accepted", "C2",
		   "accepted hits on " + what + " leave a sample and send a signal each",
		   [body] { body(true); } });
}

static const bool added = [] {
	add_pair("breakpoint.x", "calls", [](bool accept) {
		check(breakpoint(hit), { { hit, true }, { hit_other, false } }, accept);
	});

	for (auto &l : lengths) {
		std::string bytes = std::to_string(l.bytes);

		add_pair("breakpoint.w" + bytes, bytes + "-byte writes", [&l](bool accept) {
			check(breakpoint(Access::WRITE, &watched, l.bytes),
			      { { l.write, true }, { l.read, false } }, accept);
		});
		add_pair("breakpoint.rw" + bytes, bytes + "-byte accesses", [&l](bool accept) {
			check(breakpoint(Access::READ_WRITE, &watched, l.bytes),
			      { { l.write, true }, { l.read, true } }, accept);
		});
	}
	return true;
}();

TEST("breakpoint.w4.by_address", "C1",
     "a program attached to two watchpoints distinguishes adjacent words by ctx->addr")
{
	volatile auto &word = watched.fours;
	Filter filter;
	Signals signals({ SETSIG });
	Event wanted(breakpoint(Access::WRITE, &word[0], sizeof(word[0])));
	Event unwanted(breakpoint(Access::WRITE, &word[1], sizeof(word[1])));
	Ring wanted_ring(wanted), unwanted_ring(unwanted);

	filter.returns_if(1, FILTER_ADDRESS, reinterpret_cast<uintptr_t>(&word[0]));
	for (Event *event : { &wanted, &unwanted }) {
		event->async(SETSIG, gettid());
		event->enable(filter);
	}
	for (uint64_t i = 0; i < HITS; i++) {
		for (int w : { 0, 1 }) {
			word[w] = i;
			/*
			 * QEMU's TCG leaves the DR6 bit of a hit watchpoint set, and reports that
			 * watchpoint with the others, until a write to the page hits no watchpoint.
			 */
			word[2] = i;
		}
	}
	wanted_ring.drain();
	unwanted_ring.drain();
	EXPECT_EQ(wanted.count(), HITS, "hits on the wanted word");
	EXPECT_EQ(unwanted.count(), HITS, "hits on the adjacent word");
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program");
	EXPECT_EQ(wanted_ring.samples_at(&word[0]), HITS, "samples of the wanted word");
	EXPECT_EQ(unwanted_ring.samples(), 0, "samples of the adjacent word");
	EXPECT_EQ(Signals::count(SETSIG), HITS, "signals");
}

TEST("breakpoint.no_throttle", "C4", "a lone breakpoint is not throttled, however often it is hit")
{
	constexpr uint64_t MANY = 20000;
	Filter filter;
	Event event(breakpoint(hit));
	Ring ring(event);

	event.enable(filter);
	for (uint64_t i = 0; i < MANY; i++)
		hit(i);
	ring.drain();
	expect_hits(event, filter, MANY);
	EXPECT_EQ(ring.records(PERF_RECORD_THROTTLE), 0, "PERF_RECORD_THROTTLE records");
	EXPECT_EQ(ring.records(PERF_RECORD_UNTHROTTLE), 0, "PERF_RECORD_UNTHROTTLE records");
	EXPECT_EQ(ring.samples(), 0, "samples");
}
