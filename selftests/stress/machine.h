/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include <sys/types.h>

#include <vector>

/* Features of this kernel and machine. */
struct Machine {
	bool sigtrap, links, cookies, misses, pmu;
	bool misses_deliver; /* a miss has all effects except the sample: before 6.10 */
	/*
	 * On PREEMPT_RT a thread sends the signals of O_ASYNC. A task that continues before that
	 * thread has run can hit again, and both hits share one signal.
	 */
	bool merges_signals;
	std::vector<int> cpus;
	bool may_unplug; /* --hotplug: CPUs may be turned off */
};

extern Machine machine;

void detect_machine();

/* Moves a task to @cpu, or allows all CPUs if @cpu is negative. Does nothing if @cpu is offline. */
void prefer_cpu(pid_t pid, int cpu);
