// SPDX-License-Identifier: GPL-2.0
/* Calls that create, end and change tasks, which inherit events. */
#include "fuzz/fuzz.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <thread>

static void end_child(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR)
		;
}

/* The child hits, makes calls with its copies of the descriptors, and ends. */
static long fork_child(Worker &w)
{
	if (w.depth >= 2)
		return NOTHING;

	Random random(w.random.next());
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid) {
		Worker child = { random, w.depth + 1 };
		static const char self[] = "/proc/self/exe";

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (auto &other : children)
			other = 0;
		for (auto &other : mappings) /* rings are not inherited */
			other = nullptr;
		child.hits();
		child.run(random.below(12));
		switch (random.below(6)) {
		case 0:
			execl(self, self, "--hit", nullptr);
			_exit(1);
		case 1:
			for (int i = 0; i < 100; i++) {
				child.hits();
				usleep(1000);
			}
			_exit(0);
		default:
			_exit(0);
		}
	}
	end_child(children[w.random.below(std::size(children))].exchange(pid));
	return 0;
}

static const Kind kinds_here[] = {
	{ "fork", 12, fork_child },
	{ "reap", 8,
	  [](Worker &w) {
		  pid_t pid = children[w.random.below(std::size(children))].exchange(0);

		  end_child(pid);
		  return pid ? 0l : NOTHING;
	  } },
	{ "thread", 5,
	  [](Worker &w) {
		  Worker other = { Random(w.random.next()), w.depth };

		  std::thread([&] { other.hits(); }).join();
		  return 0l;
	  } },
	{ "prctl", 30,
	  [](Worker &w) {
		  if (!has_prctl)
			  return NOTHING;
		  return outcome(prctl(w.random.one_in(3) ? PR_TASK_PERF_EVENTS_DISABLE
							  : PR_TASK_PERF_EVENTS_ENABLE));
	  } },
	{ "block signals", 6,
	  [](Worker &w) {
		  sigset_t set;

		  sigemptyset(&set);
		  for (int sig : { SIGTRAP, SIGIO, SIGRTMIN + 1 })
			  if (w.random.one_in(3))
				  sigaddset(&set, sig);
		  return -long(pthread_sigmask(SIG_SETMASK, &set, nullptr));
	  } },
	{ "move", 6,
	  [](Worker &w) {
		  cpu_set_t set;

		  CPU_ZERO(&set);
		  CPU_SET(w.random.below(2), &set);
		  return outcome(sched_setaffinity(0, sizeof(set), &set));
	  } },
};

std::span<const Kind> calls_on_tasks()
{
	return kinds_here;
}
