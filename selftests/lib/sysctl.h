/* SPDX-License-Identifier: GPL-2.0 */
/* Settings of the kernel, proc(5), and back again. */
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lib/fd.h"

/*
 * A number in /proc/sys. It comes back even if the test is killed: by a guard outside of the test's
 * process group, which waits until nobody else holds the pipe, or until it is told that all is well.
 */
class Sysctl {
public:
	/* @name as "kernel/perf_event_paranoid"; unavailable() if we cannot read or set it. */
	explicit Sysctl(const char *name);
	~Sysctl();
	Sysctl(const Sysctl &) = delete;

	/* Whether the kernel takes it. */
	bool set(int value);

private:
	[[noreturn]] void guard();

	std::string file_;
	int old_ = 0;
	Pipe told_;
	pid_t guard_;
};

/* While it lives, a clock is throttled that overflows twice between two ticks. */
class SlowSampling : Sysctl {
public:
	SlowSampling();
};

/*
 * While it lives, the kernel allows @rate samples a second: it lowers its limit, down to 1, when interrupts take long.
 * unavailable() if the limit is lower and we cannot raise it.
 */
class EnoughSampling {
public:
	explicit EnoughSampling(int rate = DEFAULT);

private:
	static constexpr int DEFAULT = 100'000; /* kernel/events/core.c */

	std::optional<Sysctl> limit_;
};
