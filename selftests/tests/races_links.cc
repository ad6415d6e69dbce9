// SPDX-License-Identifier: GPL-2.0
/*
 * Links that are closed by two threads at once, or while the task of their event exits or executes
 * another program: C8.
 */
#include <bpf/bpf.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "harness/race.h"
#include "lib/gate.h"
#include "lib/program.h"
#include "tests/common.h"
#include "tests/meanwhile.h"

static constexpr int SECONDS = 8;

/* Expects that each reference that was taken to the program has been released, once. */
static void expect_freed(std::optional<Filter> &filter)
{
	const uint32_t id = info_of_program(filter->prog_fd()).id;

	EXPECT_TRUE(program_exists(id), "the program exists as long as its descriptor");
	filter.reset();
	EXPECT_TRUE(wait_until_freed(id), "the program is freed");
}

/*
 * The close that drops the last reference detaches. In every other round this thread closes its
 * descriptor only after the race, and calls BPF_LINK_DETACH meanwhile, which perf links lack.
 */
static void check_closed()
{
	constexpr uint64_t LEAST = 20;
	const int there = two_cpus().there;
	std::optional<Filter> filter(std::in_place);
	Event event(breakpoint(hit));
	std::atomic<uint64_t> begun = 0, ended = 0;
	std::atomic<bool> stop = false;
	Fd duplicate;
	uint64_t rounds = 0;
	int err = 0, detach = EOPNOTSUPP;

	filter->returns(1);
	filter->link(event).close(); /* skips the test here if there are no links */
	event.enable();

	std::thread other([&] {
		run_on(there);
		for (uint64_t round = 1;; round++) {
			while (begun < round)
				;
			if (stop)
				return;
			duplicate.close();
			ended = round;
		}
	});
	const Bound bound(SECONDS, UINT64_MAX, LEAST);

	for (; !err && detach == EOPNOTSUPP && !bound.reached(0, rounds); rounds++) {
		Fd link = filter->link(event, &err);

		if (err)
			break;
		duplicate = Fd(fcntl(link.get(), F_DUPFD_CLOEXEC, 0));
		hit(rounds);
		begun = rounds + 1;
		if (rounds % 2)
			link.close();
		else
			detach = -bpf_link_detach(link.get());
		while (ended < rounds + 1)
			;
	}
	stop = true;
	begun = UINT64_MAX;
	other.join();
	EXPECT_ERRNO(err, 0, "attaching after both descriptors have been closed");
	EXPECT_ERRNO(detach, EOPNOTSUPP, "BPF_LINK_DETACH of a perf link");
	bound.met(rounds, "rounds", err || detach != EOPNOTSUPP);
	EXPECT_EQ(filter->runs(), rounds, "runs of the program, one per round");
	expect_freed(filter);
}

static void check_exit()
{
	constexpr uint64_t LEAST = 20;
	const int there = two_cpus().there;
	std::optional<Filter> filter(std::in_place);
	uint64_t links = 0, met = 0, rounds = 0, hits = 0;
	int err = 0;

	filter->returns(1);
	filter->link(Event(breakpoint(hit)))
		.close(); /* skips the test here if there are no links */

	const Bound bound(SECONDS, UINT64_MAX, LEAST);

	for (; !err && hits == rounds && !bound.reached(0, met); rounds++) {
		std::atomic<pid_t> tid = 0;
		std::atomic<bool> ready = false;
		std::thread thread([&] {
			run_on(there);
			tid = gettid();
			while (!ready)
				;
			hit(0);
			/* Directly, because nothing races with the C library. */
			syscall(SYS_exit, 0);
		});

		while (!tid)
			sched_yield();

		Event event(breakpoint(hit), tid);
		Ring ring(event); /* without one, poll() always returns POLLHUP */
		pollfd state = { event.fd(), 0, 0 };

		event.enable();
		ready = true;
		/* POLLHUP is set when the exit of the thread has removed the event from it. */
		poll(&state, 1, 0);
		met += !(state.revents & POLLHUP);
		while (!err && !(state.revents & POLLHUP)) {
			filter->link(event, &err).close();
			links++;
			poll(&state, 1, 0);
		}
		thread.join();
		hits += event.count();
	}
	note("%lu links, %lu threads", links, rounds);
	EXPECT_ERRNO(err, 0, "attaching to an event whose thread exits");
	EXPECT_EQ(hits, rounds, "hits counted, one per thread");
	bound.met(met, "threads that have exited meanwhile", err || hits != rounds);
	expect_freed(filter);
}

/*
 * The process hits once, and then executes true. With remove_on_exec, exec() removes the event from
 * it; otherwise the event stays until the new program exits. Each round has one of the two.
 */
static void check_exec()
{
	constexpr uint64_t LEAST = 20;
	const int there = two_cpus().there;
	std::optional<Filter> filter(std::in_place);
	uint64_t links = 0, met = 0, rounds = 0, hits = 0, wrong = 0;
	int err = 0;

	filter->returns(1);
	filter->link(Event(breakpoint(hit)))
		.close(); /* skips the test here if there are no links */

	const Bound bound(SECONDS, UINT64_MAX, LEAST);

	for (; !err && !wrong && hits == rounds && !bound.reached(0, met); rounds++) {
		perf_event_attr attr = breakpoint(hit);
		Gate gate;
		Child child([&] {
			run_on(there);
			gate.pass();
			hit(0);
			execlp("true", "true", nullptr);
			return 1;
		});

		attr.remove_on_exec = rounds % 2;

		Event event(attr, child.pid());
		Ring ring(event); /* without one, poll() always returns POLLHUP */
		pollfd state = { event.fd(), 0, 0 };
		uint64_t meanwhile = 0;

		event.enable();
		gate.open();
		for (; !err && !(state.revents & POLLHUP); meanwhile++) {
			filter->link(event, &err).close();
			poll(&state, 1, 0);
		}
		wrong += child.wait() != 0;
		/* The first link may have been closed before the process has passed the gate. */
		met += meanwhile > 1;
		links += meanwhile;
		hits += event.count();
	}
	note("%lu links, %lu processes", links, rounds);
	EXPECT_ERRNO(err, 0, "attaching to an event whose task executes a program");
	EXPECT_EQ(wrong, 0, "processes that did not execute true");
	EXPECT_EQ(hits, rounds, "hits counted, one per process");
	bound.met(met, "processes that have executed true meanwhile",
		  err || wrong || hits != rounds);
	expect_freed(filter);
}

/* A race of up to 25 s, after which the program may take some seconds to be freed. */
static constexpr int DEADLINE = 60;

static const bool added =
	add_test({ "races.links.closed", "C8",
		   "if two threads close the descriptors of a link at once, the program is "
		   "detached once",
		   check_closed, DEADLINE }) &&
	add_test({ "races.links.exit", "C8",
		   "links can be created and closed while the thread of their event exits",
		   check_exit, DEADLINE }) &&
	add_test({ "races.links.exec", "C8",
		   "links can be created and closed while the task of their event is in exec()",
		   check_exec, DEADLINE });
