// SPDX-License-Identifier: GPL-2.0
#include "lib/cpus.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "lib/fail.h"
#include "lib/kernel.h"

static std::vector<int> affinity()
{
	cpu_set_t set;
	std::vector<int> cpus;

	if (sched_getaffinity(0, sizeof(set), &set))
		setup_failed("sched_getaffinity", errno);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus.push_back(cpu);
	return cpus;
}

void become_realtime(int priority)
{
	const sched_param param = { .sched_priority = priority };

	if (!sched_setscheduler(0, SCHED_FIFO, &param))
		return;
	if (errno == EPERM)
		unavailable("no permission for SCHED_FIFO");
	setup_failed("SCHED_FIFO", errno);
}

const std::vector<int> &usable_cpus()
{
	static const std::vector<int> cpus = affinity();

	return cpus;
}

static void run_on(pid_t tid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(tid, sizeof(set), &set))
		setup_failed("sched_setaffinity", errno);
}

void run_on(int cpu)
{
	run_on(0, cpu);
}

void pin_for_signals(pid_t tid)
{
	if (!kernel_is_realtime())
		return;
	if (tid == gettid())
		run_on(sched_getcpu());
	else
		run_on(tid, usable_cpus().front());
}

void force_reschedule()
{
	rusage before, now;

	getrusage(RUSAGE_THREAD, &before);
	do {
		usleep(1000);
		getrusage(RUSAGE_THREAD, &now);
	} while (now.ru_nvcsw == before.ru_nvcsw);
}
