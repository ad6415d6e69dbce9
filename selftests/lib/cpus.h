/* SPDX-License-Identifier: GPL-2.0 */
/* The CPU on which the calling thread runs, sched_setaffinity(2). */
#pragma once

#include <sys/types.h>

#include <vector>

/* The CPUs in the affinity mask of the calling thread at the first call. */
const std::vector<int> &usable_cpus();

/* Moves the calling thread to @cpu and keeps it there. */
void run_on(int cpu);

/* Moves the calling thread to SCHED_FIFO. Calls unavailable() if that is not permitted. */
void become_realtime(int priority);

/*
 * On PREEMPT_RT the per-CPU thread irq_work/N sends the SIGIO of a hit and preempts the task that
 * has hit. If that task migrates first, it can hit again before irq_work/N runs, and both hits
 * share one signal. So keep the task @tid on one CPU; the calling thread stays on its current one.
 */
void pin_for_signals(pid_t tid);

/*
 * Makes sure that the calling thread is scheduled out and in again. A short sleep is not enough: on
 * a busy machine it can expire before the thread is scheduled out.
 */
void force_reschedule();
