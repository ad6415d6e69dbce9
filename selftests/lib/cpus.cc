// SPDX-License-Identifier: GPL-2.0
#include "lib/cpus.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "lib/fail.h"

std::vector<int> usable_cpus()
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

void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		setup_failed("sched_setaffinity", errno);
}

void be_rescheduled()
{
	rusage before, now;

	getrusage(RUSAGE_THREAD, &before);
	do {
		usleep(1000);
		getrusage(RUSAGE_THREAD, &now);
	} while (now.ru_nvcsw == before.ru_nvcsw);
}
