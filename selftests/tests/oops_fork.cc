// SPDX-License-Identifier: GPL-2.0
/* C8: a program may be detached while its event is being inherited. */
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>

#include "harness/race.h"
#include "lib/program.h"
#include "tests/common.h"
#include "tests/meanwhile.h"

/*
 * Forks with CLONE_FILES, because a child with its own descriptors would keep a link open that its
 * parent closes. With @used_pid, a PID in use, the fork fails, but only after the child has
 * inherited the events: the cheapest way to inherit repeatedly.
 */
static pid_t fork_sharing_files(const pid_t *used_pid)
{
	clone_args args = {};

	args.flags = CLONE_FILES | (used_pid ? CLONE_VM | CLONE_FS : 0);
	args.exit_signal = SIGCHLD;
	args.set_tid = reinterpret_cast<uintptr_t>(used_pid);
	args.set_tid_size = used_pid ? 1 : 0;
	return syscall(SYS_clone3, &args, sizeof(args));
}

static constexpr int FORK_SECONDS = 10;
static constexpr uint64_t LEAST = 20; /* forks and detaches during the race */

/* Forks until the race of @detached against the forks is over. */
static void fork_during(const Bound &bound, const std::atomic<uint64_t> &detached)
{
	constexpr uint64_t SUCCEED_EVERY = 64;
	const pid_t used_pid = getpid();
	uint64_t forks = 0;

	for (; !bound.reached(0, std::min(forks, detached.load())); forks++) {
		bool succeeds = forks % SUCCEED_EVERY == 0;
		pid_t pid = fork_sharing_files(succeeds ? nullptr : &used_pid);

		if (!pid) {
			hit_times(1);
			_exit(0);
		}
		if (succeeds ? pid < 0 : errno != EEXIST)
			setup_failed("clone3", errno);
		if (succeeds)
			waitpid(pid, nullptr, 0);
	}
	note("%lu forks", forks);
	bound.met(std::min(forks, detached.load()), "forks and detaches during the race");
}

enum class Forker {
	TASK, /* the task of the event, which holds the mutex of its context while it forks */
	CHILD, /* a child, which holds another mutex */
};

static void race_fork(Forker forker)
{
	const Cpus cpus = two_cpus();
	Event event(inherited(breakpoint(hit)));
	/* Slow down the forks, so that a detach fits between two of their steps. */
	Interrupts interrupts(cpus.here);
	auto &detached = shared_with_children<std::atomic<uint64_t>>();

	Filter().link(event).close();
	event.enable();
	{
		std::optional<Child> child;

		/* Create the child before the link: it would inherit the descriptor of the link. */
		if (forker == Forker::CHILD)
			child.emplace([&] {
				fork_during(Bound(FORK_SECONDS, UINT64_MAX, LEAST), detached);
				return 0;
			});

		/*
		 * Only the link holds a reference to the program, so a program that is inherited
		 * too late has already been freed.
		 */
		Meanwhile detaching(cpus.there, [&](uint64_t) {
			Fd prog = load_least(1);
			Fd link = must_link(prog.get(), event);

			prog.close();
			detached++;
		});

		if (child)
			EXPECT_STATUS(child->wait(), 0, "the child");
		else
			fork_during(Bound(FORK_SECONDS, UINT64_MAX, LEAST), detached);
	}
	note("%lu detaches", detached.load());
}

TEST_OF("oops.detach_fork.task", "C8", "closing a link is safe while the task of its event forks",
	race_fork(Forker::TASK))

TEST_OF("oops.detach_fork.child", "C8",
	"closing a link is safe while a child that inherited the event forks",
	race_fork(Forker::CHILD))
