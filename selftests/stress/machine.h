/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include <sys/types.h>

#include <vector>

/* What this kernel has; asked once. */
struct Machine {
	bool sigtrap, links, cookies, misses, pmu;
	bool misses_deliver; /* all but the sample, before 6.10 */
	/*
	 * On PREEMPT_RT a thread sends the signals of O_ASYNC. A task that goes on before it, as on
	 * another CPU, can hit again first, and the two share one.
	 */
	bool merges_signals;
	std::vector<int> cpus;
	bool may_unplug; /* them: the user says so */
};

extern Machine machine;

void look_at_machine();

/* Runs a task on that CPU alone, or on any if it is below 0; if the CPU is gone, as before. */
void prefer_cpu(pid_t pid, int cpu);
