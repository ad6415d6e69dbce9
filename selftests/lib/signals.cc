// SPDX-License-Identifier: GPL-2.0
#include "lib/signals.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include "lib/fail.h"

sigset_t set_of(std::initializer_list<int> sigs)
{
	sigset_t set;

	sigemptyset(&set);
	for (int sig : sigs)
		sigaddset(&set, sig);
	return set;
}

BlockedSignals::BlockedSignals()
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before_);
}

BlockedSignals::~BlockedSignals()
{
	pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

Handler::Handler(int sig, void (*handler)(int, siginfo_t *, void *))
	: sig_(sig)
{
	struct sigaction action = {};

	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	if (sigaction(sig, &action, &old_))
		setup_failed("sigaction", errno);
}

Handler::~Handler()
{
	sigaction(sig_, &old_, nullptr);
}

/* Written by the handler, in any thread. si_code beyond the small ones shares slot 0. */
static constexpr int CODES = 8;
static uint64_t caught[_NSIG][CODES];
static siginfo_t last_caught[_NSIG];

/*
 * An arm64 that lacks the series returns from the handler to the instruction that hit, which hits
 * again: for ever. No test makes as many of one kind.
 */
static constexpr uint64_t STORM = 20'000;

static void on_signal(int sig, siginfo_t *info, void *)
{
	int code = info->si_code > 0 && info->si_code < CODES ? info->si_code : 0;

	last_caught[sig] = *info;
	if (__atomic_add_fetch(&caught[sig][code], 1, __ATOMIC_RELAXED) == STORM)
		setup_failed("a storm of signals", ELOOP);
}

Signals::Signals(std::initializer_list<int> sigs)
{
	for (int sig : sigs) {
		for (auto &n : caught[sig])
			n = 0;
		handlers_.emplace_back(sig, on_signal);
	}
}

uint64_t Signals::count(int sig)
{
	uint64_t sum = 0;

	for (int code = 0; code < CODES; code++)
		sum += count(sig, code);
	return sum;
}

uint64_t Signals::count(int sig, int code)
{
	return __atomic_load_n(&caught[sig][code], __ATOMIC_RELAXED);
}

siginfo_t Signals::last(int sig)
{
	std::atomic_signal_fence(std::memory_order_acquire);
	return last_caught[sig];
}

TrapInfo trap_info(const siginfo_t &info)
{
	TrapInfo trap;
	const char *fields = reinterpret_cast<const char *>(&info.si_addr);

	static_assert(sizeof(trap) == 24, "addr, data, type and flags, as in siginfo_t");
	memcpy(&trap, fields, sizeof(trap));
	return trap;
}
