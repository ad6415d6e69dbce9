/* SPDX-License-Identifier: GPL-2.0 */
/* Where the calling thread runs, sched_setaffinity(2), and when. */
#pragma once

#include <vector>

/* The CPUs that it may run on. */
std::vector<int> usable_cpus();

/* From now on it runs on that one. */
void run_on(int cpu);

/*
 * Leaves the CPU and comes back. A short sleep alone does not promise that: on a busy machine it
 * can be over before it began.
 */
void be_rescheduled();
