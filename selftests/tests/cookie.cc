// SPDX-License-Identifier: GPL-2.0
/* The cookie that a program sees in children, and that a link reports: C7. */
#include <bpf/bpf.h>

#include <cerrno>
#include <thread>

#include "lib/gate.h"
#include "tests/common.h"

static constexpr uint64_t COOKIE = 0xC00C'1E00'0000'0001;

static Fd must_link(const Filter &filter, const Event &event, uint64_t cookie)
{
	int err;
	Fd link = filter.link(event, &err, cookie);

	if (!link.valid())
		setup_failed("bpf_link_create", err);
	return link;
}

/* The parent makes HITS hits, then @body makes HITS hits in a child. */
template <typename Body> static void check_inherited_cookie(Body body)
{
	Filter filter(Program::CHECKS_COOKIE);
	Event event(inherited(breakpoint(hit)));
	/*
	 * If all events of a task were inherited, the kernel could swap the contexts of parent and
	 * child, and the child would hit the parent's event, whose cookie is always correct.
	 */
	Event not_inherited(breakpoint(hit_other));
	const Fd link = must_link(filter, event, COOKIE);

	filter.checks(COOKIE, 0);
	event.enable();
	hit_times(HITS);
	EXPECT_EQ(filter.snapshot().wrong_cookies, 0,
		  "runs for the parent that saw a wrong cookie");
	body();
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program");
	EXPECT_EQ(filter.snapshot().wrong_cookies, 0, "runs that saw a wrong cookie");
}

TEST("cookie.inherited.process", "C7", "a forked child inherits the program and its cookie")
{
	check_inherited_cookie([] { in_child([] { hit_times(HITS); }); });
}

TEST("cookie.inherited.thread", "C7", "a thread inherits the program and its cookie")
{
	check_inherited_cookie([] { std::thread([] { hit_times(HITS); }).join(); });
}

TEST("cookie.inherited.grandchild", "C7", "a grandchild inherits the program and its cookie")
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

TEST("cookie.inherited.replaced", "C7",
     "a child keeps its inherited program and cookie after the parent attaches another program")
{
	Filter before(Program::CHECKS_COOKIE), after(Program::CHECKS_COOKIE);
	Gate ready, gate;
	Event event(inherited(breakpoint(hit))), not_inherited(breakpoint(hit_other));
	Fd link = must_link(before, event, COOKIE);

	before.checks(COOKIE, 0);
	after.checks(COOKIE + 1, 0);
	event.enable();

	Child child([&] {
		link.close(); /* the child's copy */
		ready.open();
		gate.pass();
		hit_times(HITS);
		return 0;
	});

	ready.pass();
	link.close();
	link = must_link(after, event, COOKIE + 1);
	hit_times(HITS);
	gate.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
	EXPECT_EQ(before.runs(), HITS, "runs of the child's program");
	EXPECT_EQ(before.snapshot().wrong_cookies, 0, "runs for the child that saw a wrong cookie");
	EXPECT_EQ(after.runs(), HITS, "runs of the parent's program");
	EXPECT_EQ(after.snapshot().wrong_cookies, 0, "runs for the parent that saw a wrong cookie");
}

TEST("cookie.refused", "C7",
     "an attachment that fails with EEXIST does not change the cookie of the attached program")
{
	Filter filter(Program::CHECKS_COOKIE), other;
	Event event(breakpoint(hit));
	const Fd link = must_link(filter, event, COOKIE);
	int err;

	filter.checks(COOKIE, 0);
	event.enable();
	EXPECT_FALSE(other.link(event, &err, COOKIE + 1).valid(), "a second link was created");
	EXPECT_ERRNO(err, EEXIST, "attaching a second link");
	hit_times(HITS);
	EXPECT_ERRNO(event.attach(other), EEXIST, "attaching by ioctl");
	hit_times(HITS);
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program");
	EXPECT_EQ(filter.snapshot().wrong_cookies, 0, "runs that saw a wrong cookie");
}

/* struct bpf_link_info for a perf event, as in include/uapi/linux/bpf.h since Linux 6.9. */
struct EventLinkInfo {
	uint32_t type, id, prog_id;
	uint64_t : 0; /* the union that follows is aligned */
	uint32_t kind; /* enum bpf_perf_event_type */
	uint64_t config;
	uint32_t attr_type;
	uint64_t cookie;
};

static uint64_t cookie_in_info(const Fd &link)
{
	EventLinkInfo info = {};
	uint32_t size = sizeof(info);

	if (bpf_obj_get_info_by_fd(link.get(), &info, &size))
		setup_failed("bpf_obj_get_info_by_fd", errno);
	if (!info.cookie && kernel_before(6, 9))
		unavailable("bpf_link_info has no cookie (it came with 6.9)");
	return info.cookie;
}

TEST("cookie.link_info", "C7",
     "bpf_link_info has the cookie of each attachment, also after a program was replaced")
{
	Filter filter(Program::CHECKS_COOKIE);
	Event event(breakpoint(hit)), other(breakpoint(hit_other));
	Fd link = must_link(filter, event, COOKIE);
	const Fd link_of_other = must_link(filter, other, COOKIE + 1);

	EXPECT_HEX(cookie_in_info(link), COOKIE, "the cookie of the first link");
	EXPECT_HEX(cookie_in_info(link_of_other), COOKIE + 1, "the cookie of the second link");
	link.close();
	link = must_link(filter, event, COOKIE + 2);
	EXPECT_HEX(cookie_in_info(link), COOKIE + 2, "the cookie of the new link");
	EXPECT_HEX(cookie_in_info(link_of_other), COOKIE + 1, "the cookie of the other link");
}
