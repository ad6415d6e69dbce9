// SPDX-License-Identifier: GPL-2.0
#include "lib/signals.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lib/arch.h"
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

Handler::Handler(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
	: sig_(sig)
{
	struct sigaction action = {};

	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO | SA_RESTART | flags;
	if (sigaction(sig, &action, &old_))
		setup_failed("sigaction", errno);
}

Handler::~Handler()
{
	sigaction(sig_, &old_, nullptr);
}

/* Written by the handler in any thread. Negative and large values of si_code share slot 0. */
static constexpr int CODES = 8;
static uint64_t caught[_NSIG][CODES];
static siginfo_t last_caught[_NSIG];

/* The registers at the last signal, and how many signals in a row had the same registers. */
static thread_local struct {
	std::remove_cvref_t<decltype(general_registers(std::declval<const ucontext_t &>()))>
		registers;
	uint64_t same;
} last_interrupted[_NSIG];

/*
 * Without the series, an arm64 kernel returns from the handler to the instruction that hit, which
 * hits again with the same registers, forever. Ignore the signal after STORM repetitions, so that
 * the test ends and fails because of the wrong number. A clock that overflows in an empty loop, or
 * any event in a repeated system call, looks the same, but no test gets so many of these signals.
 */
static void end_a_storm(int sig, const ucontext_t &context)
{
	constexpr uint64_t STORM = 5'000;
	auto &[registers, same] = last_interrupted[sig];

	same = memcmp(&registers, &general_registers(context), sizeof(registers)) ? 0 : same + 1;
	memcpy(&registers, &general_registers(context), sizeof(registers));
	if (same == STORM)
		signal(sig, SIG_IGN);
}

static void on_signal(int sig, siginfo_t *info, void *context)
{
	int code = info->si_code > 0 && info->si_code < CODES ? info->si_code : 0;

	last_caught[sig] = *info;
	__atomic_fetch_add(&caught[sig][code], 1, __ATOMIC_RELAXED);
	if (!SIGRETURN_SKIPS_HIT && Signals::ends_storms)
		end_a_storm(sig, *static_cast<ucontext_t *>(context));
}

Signals::Signals(std::initializer_list<int> sigs)
{
	for (int sig : sigs) {
		for (auto &n : caught[sig])
			n = 0;
		last_interrupted[sig].same = 0;
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
