// SPDX-License-Identifier: GPL-2.0
#include "uses/tracee.h"

#include <sched.h>

#include "lib/arch.h"
#include "lib/cpus.h"
#include "lib/hit.h"

static volatile uint64_t arrivals, finish;

NOINLINE_NOCLONE void here(uint64_t, uint64_t, uint64_t, uint64_t)
{
	arrivals = arrivals + 1;
}

NOINLINE_NOCLONE void there(uint64_t, uint64_t, uint64_t, uint64_t)
{
	arrivals = arrivals + 1;
}

static int run_laps()
{
	while (!finish) {
		for (uint64_t i = 0; i < LAP; i++) {
			uint64_t noise = (i * 0x9e3779b97f4a7c15) >> 32;

			(noise & 1 ? here : there)(i / 16, i % 3, noise >> 1 & 3, noise >> 3 & 3);
		}
	}
	return 0;
}

bool Registers::matches(const Registers &other, uint32_t matters) const
{
	bool same = pc == other.pc;

	for (size_t i = 0; i < arguments.size(); i++)
		same &= !(matters >> i & 1) || arguments[i] == other.arguments[i];
	return same;
}

/* Tracer and tracee take turns, which is faster on one CPU than on two. */
SeekTracee::SeekTracee(int prog_fd, volatile uses::uses__bss *globals)
	: Tracee((run_on(sched_getcpu()), run_laps))
	, globals_(globals)
	, attr_(breakpoint(here))
	, event_(attr_, stopped_by(SIGSTOP))
{
	event_.async(SIGTRAP, pid());
	event_.must_attach(prog_fd);
}

uint64_t SeekTracee::seek(const Registers &wanted, uint32_t matters, uint64_t nth,
			  uint64_t expected)
{
	for (size_t i = 0; i < wanted.arguments.size(); i++)
		globals_->seek_values[i] = wanted.arguments[i];
	globals_->seek_matters = matters;
	globals_->seek_nth = nth;
	globals_->seek_seen = 0;
	attr_.bp_addr = wanted.pc;
	attr_.disabled = 0;
	event_.modify(attr_);

	/*
	 * A kernel that suppresses rejected hits wakes the tracer once, any other once per hit.
	 */
	for (uint64_t wakeups = 1;; wakeups++) {
		siginfo_t info = {};

		resume(PTRACE_CONT);
		stopped_by(SIGTRAP);
		ptrace(PTRACE_GETSIGINFO, pid(), nullptr, &info);
		/* The kernel does not use POLL_IN here: its value means TRAP_BRKPT in a SIGTRAP. */
		if (info.si_code != SI_SIGIO || info.si_fd != event_.fd())
			fail("expected SI_SIGIO from the event, got si_code %d", info.si_code);
		if (arrived() >= expected)
			return wakeups;
	}
}

void SeekTracee::step()
{
	resume(PTRACE_SINGLESTEP);
	stopped_by(SIGTRAP);
}

std::vector<Registers> SeekTracee::step_through_a_lap()
{
	const auto at = [](Place *place) { return reinterpret_cast<uintptr_t>(place); };
	std::vector<Registers> oracle;

	while (oracle.size() < LAP) {
		step();

		Registers now = registers();

		if (now.pc == at(here) || now.pc == at(there))
			oracle.push_back(now);
	}
	step(); /* past the last arrival */
	return oracle;
}

Registers SeekTracee::registers() const
{
	user_regs_struct registers = registers_of(pid());

	return { pc_of(registers), first_arguments(registers) };
}

uint64_t SeekTracee::arrived() const
{
	return ptrace(PTRACE_PEEKDATA, pid(), &arrivals, nullptr);
}

uint64_t SeekTracee::end()
{
	event_.disable();
	ptrace(PTRACE_POKEDATA, pid(), &finish, 1);
	resume(PTRACE_CONT);
	EXPECT_STATUS(status(), 0, "the tracee");
	return event_.count();
}

pid_t SeekTracee::stopped_by(int sig)
{
	if (!has_stopped_by(sig))
		fail("expected stopped by %s, got %s: the tracee", signal_name(sig).c_str(),
		     status_text(status()).c_str());
	return pid();
}
