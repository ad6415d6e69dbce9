// SPDX-License-Identifier: GPL-2.0
/* An episode: two threads and their forked children use a pool of descriptors. */
#include "fuzz/fuzz.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <ctime>
#include <thread>

#include "lib/fail.h"
#include "lib/hit.h"
#include "lib/rights.h"

Pool breakpoints, others, links, progs;
perf_event_attr opened[256];
std::atomic<Mapping *> mappings[4];
std::atomic<pid_t> children[3];
std::atomic<pid_t> threads[2];
bool has_prctl;
int mail[2];
volatile uint64_t watched[4];

/* The order must not change, because the meaning of a seed depends on it. */
const std::vector<Kind> &kinds()
{
	static const std::vector<Kind> all = [] {
		std::vector<Kind> all;

		for (auto some :
		     { calls_on_events(), calls_on_programs(), calls_on_rings(), calls_on_tasks() })
			all.insert(all.end(), some.begin(), some.end());
		return all;
	}();

	return all;
}

void Worker::hits()
{
	const int times = 1 + random.below(6);

	for (int i = 0; i < times; i++) {
		switch (random.below(6)) {
		case 0:
		case 1:
			hit(i);
			break;
		case 2:
			hit_other(i);
			break;
		case 3:
			watched[random.below(std::size(watched))] = i;
			break;
		case 4:
			(void)watched[random.below(std::size(watched))];
			break;
		case 5: /* in kernel mode */
			syscall(SYS_clock_gettime, CLOCK_MONOTONIC,
				&watched[random.below(std::size(watched) - 1)]);
			syscall(SYS_getppid);
		}
	}
	counts->hits.fetch_add(times, std::memory_order_relaxed);
}

void Worker::run(int calls)
{
	/* Each worker prefers some calls and avoids others, to make rare sequences likely. */
	const std::vector<Kind> &all = kinds();
	unsigned weights[MOST_KINDS], sum = 0;

	for (size_t i = 0; i < all.size(); i++)
		sum += weights[i] = all[i].weight * random.of({ 0, 1, 1, 1, 1, 6 });
	if (!sum)
		return;
	while (calls > 0) {
		unsigned at = random.below(sum);
		size_t kind = 0;

		while (at >= weights[kind])
			at -= weights[kind++];

		long result = all[kind].call(*this);

		if (random.below(4))
			hits();
		calls--;
		if (result == NOTHING)
			continue;
		counts->tried[kind].fetch_add(1, std::memory_order_relaxed);
		counts->errors[kind][result < 0 ? std::min<long>(-result, ERRNOS - 1) : 0]
			.fetch_add(1, std::memory_order_relaxed);
		counts->calls.fetch_add(1, std::memory_order_relaxed);
	}
}

static void on_signal(int)
{
	counts->signals.fetch_add(1, std::memory_order_relaxed);
}

void episode(uint64_t seed)
{
	Random random(seed);
	Worker one = { Random(random.next()), 0 }, two = { Random(random.next()), 0 };

	setpgid(0, 0);
	for (int sig : { SIGTRAP, SIGIO, SIGUSR1, SIGUSR2, SIGRTMIN + 1, SIGRTMIN + 2 })
		signal(sig, on_signal);
	/* Some episodes do not handle a signal and are killed by it. */
	if (random.one_in(10))
		signal(random.of({ SIGTRAP, SIGIO }), SIG_DFL);
	if (random.one_in(8))
		become(NOBODY, 0);
	has_prctl = random.one_in(8);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, mail))
		setup_failed("socketpair", errno);
	threads[0] = gettid();

	std::thread second([&] {
		threads[1] = gettid();
		two.run(CALLS_EACH);
	});

	one.run(CALLS_EACH);
	second.join();
	/* The remaining descriptors are closed here, or by exit. */
	if (random.one_in(2))
		for (Pool *pool : { &links, &breakpoints, &progs, &others })
			pool->close_all();
	_exit(0);
}
