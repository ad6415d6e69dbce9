/* SPDX-License-Identifier: GPL-2.0 */
/* Signal handlers that are installed as long as an object lives. */
#pragma once

#include <signal.h>

#include <cstdint>
#include <deque>
#include <initializer_list>

#ifndef TRAP_PERF
#define TRAP_PERF 6 /* si_code of attr.sigtrap; glibc 2.36 does not have it */
#endif

/* The signal for F_SETSIG: a real-time signal, because those are queued. */
inline const int SETSIG = SIGRTMIN + 1;

/* sigsetops(3) */
sigset_t set_of(std::initializer_list<int> sigs);

/* Blocks all signals in the calling thread, and in threads that it creates during that time. */
class BlockedSignals {
public:
	BlockedSignals();
	~BlockedSignals();
	BlockedSignals(const BlockedSignals &) = delete;

private:
	sigset_t before_;
};

/* sigaction(2) with SA_SIGINFO, SA_RESTART and @flags, undone by the destructor. */
class Handler {
public:
	Handler(int sig, void (*handler)(int, siginfo_t *, void *), int flags = 0);
	~Handler();
	Handler(const Handler &) = delete;

private:
	int sig_;
	struct sigaction old_;
};

/*
 * Catches and counts signals, also by si_code (POLL_IN, POLL_HUP, TRAP_PERF). A signal that
 * irq_work or task_work sends to the task that has hit is delivered before the task executes its
 * next instruction, so the counts are exact without waiting.
 */
class Signals {
public:
	explicit Signals(std::initializer_list<int> sigs);
	Signals(const Signals &) = delete;

	/* The number of signals since the last Signals object for @sig was created. */
	static uint64_t count(int sig);
	static uint64_t count(int sig, int code);
	/* The siginfo of the last signal. */
	static siginfo_t last(int sig);

	/*
	 * Whether to ignore a signal after thousands of repetitions with the same registers: one
	 * hit then repeats endlessly. Programs that require the series turn this off.
	 */
	static inline bool ends_storms = true;

private:
	std::deque<Handler> handlers_;
};

/* The fields of siginfo_t for attr.sigtrap, which glibc 2.36 does not name. */
struct TrapInfo {
	uint64_t addr; /* si_addr */
	uint64_t data; /* si_perf_data: attr.sig_data */
	uint32_t type; /* si_perf_type: attr.type */
	uint32_t flags; /* si_perf_flags */
};

constexpr uint32_t TRAP_WAS_BLOCKED = 1; /* TRAP_PERF_FLAG_ASYNC */

TrapInfo trap_info(const siginfo_t &info);
