/* SPDX-License-Identifier: GPL-2.0 */
/* Settings in /proc/sys, which are restored afterwards. */
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lib/fd.h"

/*
 * A number in /proc/sys. The old value is restored even if the test is killed: a guard process
 * outside of the test's process group restores it when the test's end of their sockets is closed,
 * unless the destructor has written to it. The guard keeps only pipes and sockets of the test.
 */
class Sysctl {
public:
	/* @name such as "kernel/perf_event_paranoid"; unavailable() if it cannot be set. */
	explicit Sysctl(const char *name);
	~Sysctl();
	Sysctl(const Sysctl &) = delete;

	/* Returns whether the kernel has accepted the value. */
	bool set(int value);

private:
	[[noreturn]] void guard();

	std::string file_;
	int old_ = 0;
	SocketPair ends_; /* of the test and of the guard, which writes when it is ready */
	pid_t guard_;
};

/* While it lives, a clock that overflows twice between two ticks is throttled. */
class SlowSampling : Sysctl {
public:
	SlowSampling();
};

/*
 * While it lives, the kernel allows at least @rate samples per second. The kernel lowers its limit,
 * down to 1, when interrupts take long. unavailable() if the limit is lower and cannot be raised.
 */
class EnoughSampling {
public:
	explicit EnoughSampling(int rate = DEFAULT);

private:
	static constexpr int DEFAULT = 100'000; /* kernel/events/core.c */

	std::optional<Sysctl> limit_;
};
