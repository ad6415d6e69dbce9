// SPDX-License-Identifier: GPL-2.0
/*
 * C1, C2 and C3 for readers of an event: the modes of the ring buffer, the system calls that wait
 * for it, and the formats of read(2).
 */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#include <cerrno>

#include "tests/callchain.h"
#include "tests/common.h"

/* The size of a sample with its header, IP and ADDR. */
static constexpr uint64_t SAMPLE_BYTES = 24;

/* Consecutive hits for which the program returns the same value. */
struct Burst {
	uint32_t verdict;
	uint64_t hits;
};

/* How often poll(2), called after each hit, was ready. */
static uint64_t polls_in(Filter &filter, const Ring &ring, const Burst &burst)
{
	uint64_t polls = 0;

	filter.returns(burst.verdict);
	for (uint64_t i = 0; i < burst.hits; i++) {
		hit(i);
		polls += ring.poll_ready();
	}
	return polls;
}

/* Settings for one wakeup per WAKE_AFTER samples, to which rejected hits must not contribute. */
static constexpr uint64_t WAKE_AFTER = 4;

static const struct {
	const char *name, *what;
	void (*set)(perf_event_attr &attr);
} wakeups[] = {
	{ "wakeup_events", "wakeup_events of N",
	  [](auto &attr) { attr.wakeup_events = WAKE_AFTER; } },
	{ "watermark", "a watermark of N samples",
	  [](auto &attr) {
		  attr.watermark = 1;
		  /* The kernel wakes up readers when the ring has more bytes than this. */
		  attr.wakeup_watermark = WAKE_AFTER * SAMPLE_BYTES - 1;
	  } },
};

static perf_event_attr with(void (*set)(perf_event_attr &attr))
{
	perf_event_attr attr = breakpoint(hit);

	set(attr);
	return attr;
}

static void check_late_wakeup(void (*set)(perf_event_attr &attr))
{
	constexpr uint64_t BEFORE = WAKE_AFTER - 1;
	Filter filter;
	Event event(with(set));
	Ring ring(event);

	event.enable(filter);
	EXPECT_EQ(polls_in(filter, ring, { 1, BEFORE }), 0, "wakeups before the Nth sample");
	EXPECT_EQ(polls_in(filter, ring, { 0, HITS }), 0, "wakeups for rejected hits");
	EXPECT_EQ(polls_in(filter, ring, { 1, 1 }), 1, "wakeups for the Nth sample");
	EXPECT_EQ(polls_in(filter, ring, { 0, HITS }), 0,
		  "wakeups for rejected hits after the Nth sample");
	EXPECT_EQ(polls_in(filter, ring, { 1, BEFORE }), 0, "wakeups before the next Nth sample");
	ring.drain();
	EXPECT_EQ(ring.samples(), 2 * BEFORE + 1, "samples");
	EXPECT_EQ(event.count(), 2 * HITS + 2 * BEFORE + 1, "hits counted");
}

static void check_late_wakeup_accepted(void (*set)(perf_event_attr &attr))
{
	for (bool attached : { false, true }) {
		Filter filter;
		Event event(with(set));
		Ring ring(event);

		if (attached)
			event.must_attach(filter);
		event.enable();
		EXPECT_EQ(polls_in(filter, ring, { 1, HITS }), HITS / WAKE_AFTER, "wakeups");
		ring.drain();
		EXPECT_EQ(ring.samples(), HITS, "samples");
	}
}

/* Each of these functions asks once, without waiting, whether @fd is ready. */
static bool ready_in_poll(int fd)
{
	pollfd poller = { fd, POLLIN, 0 };

	return poll(&poller, 1, 0) == 1 && poller.revents == POLLIN;
}

static bool ready_in_select(int fd)
{
	fd_set readable;
	timeval now = {};

	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	return select(fd + 1, &readable, nullptr, nullptr, &now) == 1 && FD_ISSET(fd, &readable);
}

template <uint32_t flags> static bool ready_in_epoll(int fd)
{
	static const Fd waiter(epoll_create1(EPOLL_CLOEXEC));
	epoll_event event = {};

	event.events = EPOLLIN | flags;
	/* Fails with EEXIST except the first time. */
	epoll_ctl(waiter.get(), EPOLL_CTL_ADD, fd, &event);
	return epoll_wait(waiter.get(), &event, 1, 0) == 1 && event.events == EPOLLIN;
}

static const struct {
	const char *name, *title;
	bool (*ready)(int fd);
} waiters[] = {
	{ "poll", "poll()", ready_in_poll },
	{ "select", "select()", ready_in_select },
	{ "epoll", "epoll_wait()", ready_in_epoll<0> },
	{ "epoll_edge", "epoll_wait() with EPOLLET", ready_in_epoll<EPOLLET> },
};

/* With O_ASYNC, because only then does a rejected hit wake up waiters on an old kernel. */
static void check_waiter(bool (*ready)(int fd), Verdict verdict)
{
	Filter filter;
	Signals signals({ SIGIO });
	Event event(breakpoint(hit));
	Ring ring(event);
	uint64_t after_hits = 0, again = 0;

	event.async();
	enable(event, filter, verdict);
	EXPECT_FALSE(ready(event.fd()), "the event is ready before the first hit");
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		after_hits += ready(event.fd());
		again += ready(event.fd());
	}

	bool delivers = verdict.delivers();

	EXPECT_EQ(after_hits, delivers ? HITS : 0, "times that the event was ready after a hit");
	EXPECT_EQ(again, 0, "times that the event was ready again without another hit");
}

static const bool added = [] {
	for (auto &w : wakeups) {
		std::string name = std::string("ring.") + w.name, what = w.what;

		add_test({ name + ".rejected", "C1", "rejected hits do not count towards " + what,
			   [&w] { check_late_wakeup(w.set); } });
		add_test({ name + ".accepted", "C2",
			   what + " causes a wakeup on every Nth accepted hit",
			   [&w] { check_late_wakeup_accepted(w.set); } });
	}
	for (auto &w : waiters) {
		std::string name = std::string("ring.") + w.name, title = w.title;

		add_test({ name + ".rejected", "C1",
			   title + " does not report an event as ready after a rejected hit",
			   [&w] { check_waiter(w.ready, rejects); } });
		add_test({ name + ".accepted", "C2",
			   title + " reports an event as ready once after an accepted hit", [&w] {
				   check_waiter(w.ready, no_program);
				   check_waiter(w.ready, { true, 1 });
			   } });
	}
	return true;
}();

static perf_event_attr backward()
{
	perf_event_attr attr = breakpoint(hit);

	attr.write_backward = 1;
	return attr;
}

TEST("ring.overwrite.rejected", "C1",
     "rejected hits do not push samples out of an overwriting ring")
{
	Filter filter;
	Event event(backward());
	Ring ring(event, Ring::Mode::OVERWRITE, 1);
	uint64_t fit = ring.size() / SAMPLE_BYTES;

	event.enable(filter);
	hit_times(2 * fit);
	ring.drain();
	EXPECT_EQ(ring.samples(), 0, "samples of rejected hits");
	filter.returns(1);
	hit_times(HITS);
	filter.returns(0);
	hit_times(2 * fit);
	ring.drain();
	EXPECT_EQ(ring.samples(), HITS, "samples after more rejected hits");
	EXPECT_EQ(event.count(), 4 * fit + HITS, "hits counted");
}

TEST("ring.overwrite.accepted", "C2",
     "an overwriting ring keeps the samples of the newest accepted hits")
{
	for (bool attached : { false, true }) {
		Filter filter;
		Event event(backward());
		Ring ring(event, Ring::Mode::OVERWRITE, 1);
		uint64_t fit = ring.size() / SAMPLE_BYTES;

		enable(event, filter, { attached, 1 });
		hit_times(2 * fit);
		ring.drain();
		EXPECT_EQ(ring.samples(), fit, "samples kept in the ring");
		EXPECT_EQ(ring.records(PERF_RECORD_LOST), 0, "PERF_RECORD_LOST records");
		EXPECT_EQ(filter.runs(), attached ? 2 * fit : 0, "runs of the program");
	}
}

/* read(2) of such an event returns { value, lost }. */
static perf_event_attr counting_lost()
{
	perf_event_attr attr = breakpoint(hit);

	attr.read_format = PERF_FORMAT_LOST;
	return attr;
}

TEST("ring.full.rejected", "C1", "rejected hits on a full ring do not produce PERF_RECORD_LOST")
{
	constexpr uint64_t VALUE = 0, LOST = 1;
	Filter filter;
	Event event(counting_lost());
	Ring ring(event, Ring::Mode::NORMAL, 1);
	uint64_t fit = ring.size() / SAMPLE_BYTES;

	event.enable(filter);
	filter.returns(1);
	hit_times(fit);
	filter.returns(0);
	hit_times(HITS);
	EXPECT_EQ(event.read_words()[LOST], 0, "lost samples in PERF_FORMAT_LOST");
	ring.drain();
	filter.returns(1);
	hit(0);
	ring.drain();
	EXPECT_EQ(ring.samples(), fit + 1, "samples");
	EXPECT_EQ(ring.lost(), 0, "samples reported by PERF_RECORD_LOST");
	EXPECT_EQ(event.read_words()[VALUE], fit + HITS + 1, "hits counted");
}

TEST("ring.full.accepted", "C2", "accepted hits on a full ring are reported as lost samples")
{
	constexpr uint64_t LOST = 1;

	for (bool attached : { false, true }) {
		Filter filter;
		Event event(counting_lost());
		Ring ring(event, Ring::Mode::NORMAL, 1);
		uint64_t fit = ring.size() / SAMPLE_BYTES;

		enable(event, filter, { attached, 1 });
		hit_times(fit + HITS);
		ring.drain();
		EXPECT_EQ(event.read_words()[LOST], HITS, "lost samples in PERF_FORMAT_LOST");
		/* There is space again: the record of the lost samples precedes the next sample. */
		hit(0);
		ring.drain();
		EXPECT_EQ(ring.samples(), fit + 1, "samples");
		EXPECT_EQ(ring.lost(), HITS, "samples reported by PERF_RECORD_LOST");
	}
}

TEST("ring.read.formats", "C3", "read() returns the count and the id, whatever the program returns")
{
	for (Verdict verdict : { no_program, rejects, Verdict{ true, 1 } }) {
		perf_event_attr attr = breakpoint(hit);
		Filter filter;

		attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING |
				   PERF_FORMAT_ID;

		Event event(attr);

		enable(event, filter, verdict);
		hit_times(HITS);

		enum { VALUE, ENABLED, RUNNING, ID, WORDS };
		std::vector<uint64_t> words = event.read_words();

		if (words.size() != WORDS)
			fail("expected %d words from read(), got %zu", WORDS, words.size());
		EXPECT_EQ(words[VALUE], HITS, "hits read");
		EXPECT_VALUE(words[RUNNING], words[ENABLED], "time running, equal to time enabled");
		EXPECT_VALUE(words[ID], event.id(), "id of the event");
	}
}

TEST("ring.read.group", "C3",
     "reading a group returns the counts of a rejecting and of an accepting event")
{
	perf_event_attr first = breakpoint(hit), second = breakpoint(hit_other);
	Filter rejecting, accepting;

	first.read_format = second.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID;
	second.disabled = 0; /* enabled and disabled with its leader */

	Event leader(first), sibling(second, 0, -1, &leader);
	Ring leader_ring(leader), sibling_ring(sibling);

	accepting.returns(1);
	leader.must_attach(rejecting);
	sibling.must_attach(accepting);
	leader.enable();
	hit_times(HITS);
	for (uint64_t i = 0; i < 2 * HITS; i++)
		hit_other(i);

	enum { NUMBER, VALUE, ID, SIBLING_VALUE, SIBLING_ID, WORDS };
	std::vector<uint64_t> words = leader.read_words();

	if (words.size() != WORDS)
		fail("expected %d words from read(), got %zu", WORDS, words.size());
	EXPECT_EQ(words[NUMBER], 2, "events in the group");
	EXPECT_EQ(words[VALUE], HITS, "hits read for the leader");
	EXPECT_VALUE(words[ID], leader.id(), "id of the leader");
	EXPECT_EQ(words[SIBLING_VALUE], 2 * HITS, "hits read for the sibling");
	EXPECT_VALUE(words[SIBLING_ID], sibling.id(), "id of the sibling");
	leader_ring.drain();
	sibling_ring.drain();
	EXPECT_EQ(leader_ring.samples(), 0, "samples of the leader");
	EXPECT_EQ(sibling_ring.samples(), 2 * HITS, "samples of the sibling");
}

TEST("ring.shared", "C1", "of two events that share a ring, only the accepting one writes samples")
{
	Filter rejecting, accepting;
	Event quiet(breakpoint(hit)), loud(breakpoint(hit_other));
	Ring ring(loud);

	quiet.write_to(loud);
	accepting.returns(1);
	quiet.must_attach(rejecting);
	loud.must_attach(accepting);
	quiet.enable();
	loud.enable();
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		EXPECT_FALSE(ring.poll_ready(), "the event is ready after a rejected hit");
		hit_other(i);
		EXPECT_TRUE(ring.poll_ready(), "the event is ready after an accepted hit");
	}
	ring.drain();
	EXPECT_EQ(ring.samples(), HITS, "samples");
	EXPECT_EQ(ring.samples_at(reinterpret_cast<void *>(hit_other)), HITS,
		  "samples at the accepted address");
	EXPECT_EQ(quiet.count(), HITS, "hits counted by the rejecting event");
}

/*
 * The kernel writes the record before it returns to user mode, so there is nothing to wait for. For
 * a program that can see the sample, more of the sample is filled in before the program runs.
 */
static void check_deferred_callchain(Program program, bool accept)
{
	Filter filter(program);
	Event event(with_deferred_callchain(breakpoint(hit)));
	Ring ring(event);

	if (!DEFERS_CALLCHAINS)
		unavailable("Linux does not defer callchains on this architecture");
	filter.returns(accept);
	event.enable(filter);
	hit_times(HITS);
	event.disable();

	const UserCallchains found = take_user_callchains(ring);

	EXPECT_EQ(found.samples, accept ? HITS : 0, "samples");
	EXPECT_EQ(found.deferred, accept ? HITS : 0, "deferred callchains of samples");
	EXPECT_EQ(found.stray, 0, "deferred callchains of no sample");
}

TEST("ring.deferred_callchain.rejected", "C1", "a rejected hit leaves no deferred callchain")
{
	check_deferred_callchain(Program::ON_OVERFLOW, false);
	check_deferred_callchain(Program::READS_SAMPLE, false);
}

TEST("ring.deferred_callchain.accepted", "C2",
     "an accepted hit leaves its deferred callchain, with the cookie of its sample")
{
	check_deferred_callchain(Program::ON_OVERFLOW, true);
	check_deferred_callchain(Program::READS_SAMPLE, true);
}

/* A sample consists of header, IP, ADDR, the number of frames, and the frames. */
TEST("ring.deferred_callchain.size", "C2",
     "the size of a sample does not include a callchain that only its program saw")
{
	Filter filter(Program::READS_SAMPLE);
	Event event(with_deferred_callchain(breakpoint(hit)));
	Ring ring(event);

	filter.returns(true);
	event.enable(filter);
	hit_times(HITS);
	event.disable();

	const auto samples = ring.take_samples();

	EXPECT_EQ(samples.size(), HITS, "samples");
	for (const auto &words : samples)
		EXPECT_EQ(words.size(), 4 + words.at(3), "words of a sample");
}
