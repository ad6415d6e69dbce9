/* SPDX-License-Identifier: GPL-2.0 */
/* Headers and functions that nearly all tests need. */
#pragma once

#include "harness/test.h"
#include "lib/arch.h"
#include "lib/child.h"
#include "lib/cpus.h"
#include "lib/effects.h"
#include "lib/fail.h"
#include "lib/filter.h"
#include "lib/kernel.h"
#include "lib/ring.h"
#include "lib/signals.h"

/* Runs @body in a child, and waits for the child. */
template <typename Body> void in_child(Body body, CallSite at = CallSite::of_call())
{
	Child child([&] {
		body();
		return 0;
	});

	expect_as(status_text, child.wait(), 0, "the child", at.file, at.line);
}

/* The exit code in a status of waitpid(2). A child that was killed has none. */
inline int exit_code(int status)
{
	if (!WIFEXITED(status))
		fail("expected the child to exit, but it was %s", status_text(status).c_str());
	return WEXITSTATUS(status);
}

/* Whether a rejected hit raises no SIGTRAP. If it does, gdbserver evaluates the conditions. */
inline bool kernel_rejects_sigtrap()
{
	Setup setup;

	setup.sigtrap = true;
	return has_sigtrap() && !observe(setup, rejects).sigtrap;
}

/* For tests in which the kernel's own accesses to user memory must hit. */
inline void need_kernel_hits()
{
	if (!WATCHES_KERNEL)
		unavailable("the kernel hits no watchpoint on user memory on this architecture");
}

/*
 * A breakpoint on a kernel function. Open it per CPU, because arm64 has no task breakpoints in the
 * kernel.
 */
inline perf_event_attr breakpoint_in_kernel(const char *function)
{
	perf_event_attr attr = breakpoint(Access::EXECUTE, nullptr, EXECUTE_LENGTH);

	attr.bp_addr = kernel_address_of(function);
	attr.exclude_kernel = 0;
	if (!attr.bp_addr) {
		std::string reason("/proc/kallsyms has no address of ");

		reason.append(function).append("()");
		unavailable(reason.c_str());
	}
	/* Without kprobes the kernel refuses breakpoints anywhere in its text. */
	if (!kernel_address_of("register_kprobe"))
		unavailable("no breakpoints in the kernel's text (CONFIG_KPROBES)");
	return attr;
}

/* Enables the event, with @filter attached if @verdict has a program. */
inline void enable(Event &event, Filter &filter, Verdict verdict)
{
	filter.returns(verdict.returns);
	if (verdict.attached)
		event.must_attach(filter);
	event.enable();
}

/* Expects that the event has counted @hits and that the program has run for each of them. */
inline void expect_hits(const Event &event, const Filter &filter, uint64_t hits,
			CallSite at = CallSite::of_call())
{
	expect(std::equal_to(), "", event.count(), hits, "hits counted", at.file, at.line);
	expect(std::equal_to(), "", filter.runs(), hits, "runs of the program", at.file, at.line);
}

/* Expects that @hits hits have each left a sample and sent SETSIG. Call drain() first. */
inline void expect_delivered(const Ring &ring, uint64_t hits, CallSite at = CallSite::of_call())
{
	expect(std::equal_to(), "", ring.samples(), hits, "samples", at.file, at.line);
	expect(std::equal_to(), "", Signals::count(SETSIG), hits, "signals", at.file, at.line);
}

/*
 * Two tasks on one CPU whose events are clones: on a switch from one to the other the kernel swaps
 * their contexts. All members must be false at first.
 */
struct ContextSwap {
	std::atomic<bool> waits, sleeps, exited;

	/*
	 * For the task that exits next. The switch back to this task is from the idle task, so the
	 * kernel does not swap the contexts again.
	 */
	void give_away()
	{
		sleeps = true;
		usleep(10'000);
	}

	/* For the other task. Returns when @exited is set, after the exit of the first task. */
	void keep()
	{
		waits = true;
		while (!sleeps)
			sched_yield();
		for (clock_t begun = clock(); clock() - begun < CLOCKS_PER_SEC / 500;)
			;
		usleep(20'000);
		while (!exited)
			usleep(1000);
	}
};

/*
 * Opens an event with @open() in a task, forks, and lets the parent exit with the context of its
 * child. Then calls @work with the event in the child, and returns the result. The caller must be
 * bound to one CPU.
 */
template <typename Open, typename Work>
uint64_t after_exit_with_context_of_child(Open open, Work work)
{
	struct Both {
		ContextSwap swap;
		std::atomic<bool> done;
		std::atomic<uint64_t> result;
	};
	auto &both = shared_with_children<Both>();

	/* If the kernel has no such events, @open() must skip the test here, not in the child. */
	open().close();

	Child parent([&] {
		auto event = open();

		event.enable();
		if (fork()) {
			both.swap.give_away();
			_exit(0);
		}
		both.swap.keep();
		both.result = work(event);
		both.done = true;
		_exit(0);
		return 0;
	});

	parent.wait();
	both.swap.exited = true;
	while (!both.done)
		usleep(1000);
	return both.result;
}

/* A disabled event of another type, with a period of 1 and the sample_type of breakpoint(). */
inline perf_event_attr counter(uint32_t type, uint64_t config)
{
	perf_event_attr attr = breakpoint(hit);

	attr.type = type;
	attr.config = config;
	attr.bp_type = 0;
	attr.bp_addr = 0;
	attr.bp_len = 0;
	return attr;
}
