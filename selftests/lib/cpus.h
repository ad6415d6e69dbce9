/* SPDX-License-Identifier: GPL-2.0 */
/* Where the calling thread runs, sched_setaffinity(2), and when. */
#pragma once

#include <sys/types.h>

#include <vector>

/* The CPUs that it might run on when it was first asked. */
const std::vector<int> &usable_cpus();

/* From now on it runs on that one. */
void run_on(int cpu);

/*
 * On PREEMPT_RT a thread of each CPU, irq_work/N, sends the SIGIO of a hit, and preempts whom it hits
 * there. But who is moved as that happens hits on, and all these hits have one signal. That task
 * stays on one CPU from now on, the calling thread on the one where it is.
 */
void stay_for_signals(pid_t tid);

/*
 * Leaves the CPU and comes back. A short sleep alone does not promise that: on a busy machine it
 * can be over before it began.
 */
void be_rescheduled();
