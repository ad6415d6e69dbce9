/* SPDX-License-Identifier: GPL-2.0 */
/* A cgroup for perf events, see PERF_FLAG_PID_CGROUP in perf_event_open(2). */
#pragma once

#include <string>

#include "lib/event.h"
#include "lib/fd.h"

/* A cgroup that the destructor removes. unavailable() if the kernel has none for perf events. */
class Cgroup {
public:
	Cgroup();
	~Cgroup();
	Cgroup(const Cgroup &) = delete;

	/* An event for all tasks in the cgroup on @cpu. If it fails, errno is set. */
	Fd open(const perf_event_attr &attr, int cpu) const;
	/* Moves a process to the cgroup. */
	void add(pid_t pid) const;

private:
	const std::string path_;
	Fd dir_;
};
