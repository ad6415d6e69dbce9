// SPDX-License-Identifier: GPL-2.0
/* Attaching and detaching programs, moving breakpoints, inheriting events: C2, C5, C6, C9. */
#include <cerrno>

#include "lib/gate.h"
#include "tests/common.h"

static void check_attached(bool by_link, bool enabled_first)
{
	Filter filter;
	Event event(breakpoint(hit));
	Ring ring(event);
	Fd link;

	if (enabled_first)
		event.enable();
	hit_times(HITS);
	if (by_link)
		link = filter.link(event);
	else
		event.must_attach(filter);
	event.enable();

	uint64_t bare = enabled_first ? HITS : 0;

	hit_times(HITS);
	ring.drain();
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(ring.samples(), bare, "samples after rejected hits");

	filter.returns(1);
	hit_times(HITS);
	ring.drain();
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program");
	EXPECT_EQ(ring.samples(), bare + HITS, "samples after accepted hits");
	EXPECT_EQ(event.count(), bare + 2 * HITS, "hits counted");
}

static const bool added = [] {
	for (bool by_link : { false, true })
		for (bool enabled_first : { false, true })
			add_test({ std::string("attach.") + (by_link ? "link" : "ioctl") +
					   (enabled_first ? ".after_enable" : ".before_enable"),
				   "C6",
				   std::string("a program attached by ") +
					   (by_link ? "link " : "ioctl ") +
					   (enabled_first ? "after" : "before") +
					   " its event is enabled filters every later hit",
				   [=] { check_attached(by_link, enabled_first); } });
	return true;
}();

TEST("attach.link.close", "C6",
     "after the link of a program is closed, hits are delivered as without a program")
{
	Filter filter;
	Event event(breakpoint(hit));
	Ring ring(event);

	event.enable();
	for (uint64_t round = 1; round <= 3; round++) {
		Fd link = filter.link(event);

		hit_times(HITS);
		link.close();
		hit_times(HITS);
		ring.drain();
		EXPECT_EQ(filter.runs(), round * HITS, "runs of the program");
		EXPECT_EQ(ring.samples(), round * HITS, "samples");
		EXPECT_EQ(event.count(), 2 * round * HITS, "hits counted");
	}
}

TEST("attach.second.ioctl", "C8",
     "attaching a second program by ioctl fails with EEXIST, and the first one stays attached")
{
	Filter first, second;
	Event event(breakpoint(hit));

	event.must_attach(first);
	EXPECT_ERRNO(event.attach(second), EEXIST, "attaching the second program");
	event.enable();
	hit_times(HITS);
	EXPECT_EQ(first.runs(), HITS, "runs of the first program");
	EXPECT_EQ(second.runs(), 0, "runs of the second program");
}

TEST("attach.second.link", "C8",
     "while a program is attached by link, attaching another by link or ioctl fails with EEXIST")
{
	Filter first, second;
	Event event(breakpoint(hit));
	Fd link = first.link(event);
	int err;

	EXPECT_FALSE(second.link(event, &err).valid(), "a second link was created");
	EXPECT_ERRNO(err, EEXIST, "attaching a second link");
	EXPECT_ERRNO(event.attach(second), EEXIST, "attaching by ioctl");
	event.enable();
	hit_times(HITS);
	link.close();
	EXPECT_ERRNO(event.attach(second), 0, "attaching by ioctl after the link is closed");
	hit_times(HITS);
	EXPECT_EQ(first.runs(), HITS, "runs of the first program");
	EXPECT_EQ(second.runs(), HITS, "runs of the second program");
}

TEST("attach.wrong_type", "C5",
     "attaching a tracepoint or kprobe program to a breakpoint fails with EINVAL")
{
	for (Program which : { Program::ON_TRACEPOINT, Program::ON_KPROBE }) {
		Filter filter(which);
		Event event(breakpoint(hit));

		EXPECT_ERRNO(event.attach(filter), EINVAL, "attaching the program");
		event.enable();
		hit_times(HITS);
		EXPECT_EQ(filter.runs(), 0, "runs of the program");
		EXPECT_EQ(event.count(), HITS, "hits counted");
	}
}

/* MODIFY_ATTRIBUTES enables the event unless attr.disabled is set. */
static perf_event_attr enabled(perf_event_attr attr)
{
	attr.disabled = 0;
	return attr;
}

TEST("attach.modify.moves", "C9",
     "MODIFY_ATTRIBUTES moves a breakpoint, and the breakpoint keeps its program")
{
	Filter filter;
	Event event(breakpoint(hit));
	Ring ring(event);

	event.enable(filter);
	hit_times(HITS);
	event.modify(enabled(breakpoint(hit_other)));

	hit_times(HITS);
	EXPECT_EQ(event.count(), HITS, "hits counted, none at the old address after the move");
	hit_other_times(HITS);
	ring.drain();
	expect_hits(event, filter, 2 * HITS);
	EXPECT_EQ(ring.samples(), 0, "samples of rejected hits");

	filter.returns(1);
	hit_other_times(HITS);
	ring.drain();
	EXPECT_EQ(ring.samples_at(reinterpret_cast<void *>(hit_other)), HITS,
		  "samples of accepted hits at the new address");
	EXPECT_EQ(ring.samples(), HITS, "samples in total");
}

/* @rejected of the hits before the move are rejected, and as many of those after it. */
static void check_limit_over_a_move(uint64_t rejected)
{
	constexpr uint64_t ACCEPTED_BEFORE = 2;
	Filter filter;
	Event event(breakpoint(hit));

	event.must_attach(filter);
	event.must_refresh(LIMIT);

	hit_times(rejected);
	filter.returns(1);
	hit_times(ACCEPTED_BEFORE);
	EXPECT_EQ(event.count(), rejected + ACCEPTED_BEFORE, "hits counted before the move");
	event.modify(enabled(breakpoint(hit_other)));

	filter.returns(0);
	hit_other_times(rejected);
	filter.returns(1);
	hit_other_times(2 * HITS);
	EXPECT_EQ(event.count(), 2 * rejected + LIMIT, "hits counted until the limit");
	EXPECT_EQ(filter.runs(), 2 * rejected + LIMIT, "runs of the program");
}

TEST_OF("attach.modify.keeps_limit", "C9", "MODIFY_ATTRIBUTES keeps what remains of the limit",
	check_limit_over_a_move(0))

TEST_OF("attach.modify.rejected", "C1",
	"rejected hits before and after MODIFY_ATTRIBUTES take nothing from the limit",
	check_limit_over_a_move(HITS))

TEST("attach.modify.cookie", "C9", "MODIFY_ATTRIBUTES keeps the cookie of the program")
{
	constexpr uint64_t COOKIE = 0xC00C'1E00'0000'0001;
	Filter filter(Program::CHECKS_COOKIE);
	Event event(breakpoint(hit));
	int err;
	Fd link = filter.link(event, &err, COOKIE);

	if (!link.valid())
		setup_failed("bpf_link_create", err);
	filter.checks(COOKIE, 0);
	event.enable();
	hit_times(HITS);
	event.modify(enabled(breakpoint(hit_other)));
	hit_other_times(HITS);
	expect_hits(event, filter, 2 * HITS);
	EXPECT_EQ(filter.snapshot().wrong_cookies, 0, "runs that saw a wrong cookie");
}

TEST("attach.modify.sig_data", "C9",
     "after MODIFY_ATTRIBUTES, accepted hits raise SIGTRAP with the new sig_data, and "
     "rejected hits do not")
{
	perf_event_attr attr = with_sigtrap(breakpoint(hit));
	Filter filter;
	Signals signals({ SIGTRAP });
	Event event(attr);

	event.enable(filter);
	for (uint64_t data : { 1, 2, 3 }) {
		attr.sig_data = data;
		event.modify(enabled(attr));
		filter.returns(0);
		hit_times(HITS);
		filter.returns(1);
		hit(0);
		EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), data, "SIGTRAPs");
		EXPECT_EQ(trap_info(Signals::last(SIGTRAP)).data, data, "as si_perf_data");
	}
}

/* The parent moves the event after a child has inherited it. */
static void check_modify_inherited(bool accept)
{
	if (kernel_before(5, 13))
		unavailable("MODIFY_ATTRIBUTES does not reach children (before 5.13)");

	Filter filter;
	Gate ready, moved;
	Signals signals({ SETSIG });
	Event event(inherited(breakpoint(hit)));
	/* The second event prevents the kernel from swapping the contexts of parent and child. */
	Event not_inherited(breakpoint(hit_other));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	Child child([&] {
		ready.open();
		moved.pass();
		hit_times(HITS);
		hit_other_times(HITS);
		return 0;
	});

	ready.pass();
	event.modify(enabled(inherited(breakpoint(hit_other))));
	moved.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
	expect_hits(event, filter, HITS);
	hit_other_times(HITS);
	expect_hits(event, filter, 2 * HITS);
	EXPECT_EQ(Signals::count(SETSIG), accept ? 2 * HITS : 0, "signals");
}

TEST_OF("attach.modify.inherited.rejected", "C9",
	"MODIFY_ATTRIBUTES also moves the event that a child inherited, whose hits stay rejected",
	check_modify_inherited(false))

TEST_OF("attach.modify.inherited.accepted", "C9",
	"MODIFY_ATTRIBUTES also moves the event that a child inherited, whose hits stay accepted",
	check_modify_inherited(true))

/* A child that inherits the event hits HITS times, then the parent does. */
static void check_inherited(bool accept)
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(inherited(breakpoint(hit)));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	in_child([] { hit_times(HITS); });
	EXPECT_EQ(filter.runs(), HITS, "runs of the program for the child");
	EXPECT_EQ(event.count(), HITS, "hits of the child");
	EXPECT_EQ(Signals::count(SETSIG), accept ? HITS : 0, "signals for the child's hits");
	hit_times(HITS);
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program for parent and child");
	EXPECT_EQ(event.count(), 2 * HITS, "hits of parent and child");
	EXPECT_EQ(Signals::count(SETSIG), accept ? 2 * HITS : 0,
		  "signals for hits of parent and child");
}

TEST_OF("attach.inherit.rejected", "C1",
	"the program also rejects hits in a child that inherited the event", check_inherited(false))

TEST_OF("attach.inherit.accepted", "C2",
	"accepted hits in a child that inherited the event signal the event's owner",
	check_inherited(true))

TEST("attach.inherit.refresh", "C2", "REFRESH fails with EINVAL on an event with attr.inherit")
{
	Filter filter;
	Event event(inherited(breakpoint(hit)));

	EXPECT_ERRNO(event.refresh(LIMIT), EINVAL, "REFRESH without a program");
	event.must_attach(filter);
	EXPECT_ERRNO(event.refresh(LIMIT), EINVAL, "REFRESH with a program");
}
