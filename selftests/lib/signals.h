/* SPDX-License-Identifier: GPL-2.0 */
/* Signals, caught and counted or handled for as long as an object lives. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <initializer_list>

#ifndef TRAP_PERF
#define TRAP_PERF 6 /* si_code of attr.sigtrap; newer than glibc 2.36 */
#endif

/* The signal for F_SETSIG: a real-time one, since those queue. */
inline const int SETSIG = SIGRTMIN + 1;

/* sigsetops(3) */
sigset_t set_of(std::initializer_list<int> sigs);

/* All, in the calling thread and in what it starts meanwhile. */
class BlockedSignals {
public:
	BlockedSignals();
	~BlockedSignals();
	BlockedSignals(const BlockedSignals &) = delete;

private:
	sigset_t before_;
};

/* sigaction(2), for as long as it lives; system calls go on after it. @flags: more of SA_*. */
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
 * irq_work or task_work sends to the hitting task itself arrives before that task executes its
 * next instructions, so the counts are exact with no waiting.
 */
class Signals {
public:
	explicit Signals(std::initializer_list<int> sigs);
	Signals(const Signals &) = delete;

	/* How many came since the last object for @sig was made. */
	static uint64_t count(int sig);
	static uint64_t count(int sig, int code);
	/* What came with the last one. */
	static siginfo_t last(int sig);

	/*
	 * Whether thousands from one place, with the same registers, are taken for a hit that comes
	 * again for ever, and ignored from there on. Not for who runs with the series alone.
	 */
	static inline bool ends_storms = true;

private:
	std::deque<Handler> handlers_;
};

/* What the kernel says with a SIGTRAP of attr.sigtrap, for which glibc 2.36 has no names. */
struct TrapInfo {
	uint64_t addr; /* si_addr */
	uint64_t data; /* si_perf_data: attr.sig_data */
	uint32_t type; /* si_perf_type: attr.type */
	uint32_t flags; /* si_perf_flags */
};

constexpr uint32_t TRAP_WAS_BLOCKED = 1; /* TRAP_PERF_FLAG_ASYNC */

TrapInfo trap_info(const siginfo_t &info);
