// SPDX-License-Identifier: GPL-2.0
/* The cookie that a program sees in children: C7. */
#include <thread>

#include "tests/common.h"

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
