// SPDX-License-Identifier: GPL-2.0
#include "uses/tracee.h"

#include <sched.h>
#include <sys/wait.h>

#include <cerrno>

#include "lib/arch.h"
#include "lib/cpus.h"
#include "lib/hit.h"
#include "lib/ptrace.h"

static volatile uint64_t arrivals, finish;

KEPT_APART void here(uint64_t, uint64_t, uint64_t, uint64_t)
{
	arrivals = arrivals + 1;
}

KEPT_APART void there(uint64_t, uint64_t, uint64_t, uint64_t)
{
	arrivals = arrivals + 1;
}

static int run_laps()
{
	stop_for_tracer();
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

Tracee::Tracee(int prog_fd, volatile uses::uses__bss *globals)
	: globals_(globals)
	/* They only ever wait for each other: on two CPUs they are slower. */
	, child_((run_on(sched_getcpu()), run_laps))
	, attr_(breakpoint(here))
	, event_(attr_, stopped_by(SIGSTOP))
{
	event_.async(SIGTRAP, child_.pid());
	event_.must_attach(prog_fd);
}

uint64_t Tracee::seek(const Registers &wanted, uint32_t matters, uint64_t nth, uint64_t expected)
{
	for (size_t i = 0; i < wanted.arguments.size(); i++)
		globals_->seek_values[i] = wanted.arguments[i];
	globals_->seek_matters = matters;
	globals_->seek_nth = nth;
	globals_->seek_seen = 0;
	attr_.bp_addr = wanted.pc;
	attr_.disabled = 0;
	event_.modify(attr_);

	/* One wakeup. A kernel that does not suppress takes as many as there are hits. */
	for (uint64_t wakeups = 1;; wakeups++) {
		siginfo_t info = {};

		resume(PTRACE_CONT);
		stopped_by(SIGTRAP);
		ptrace(PTRACE_GETSIGINFO, child_.pid(), nullptr, &info);
		/* Not POLL_IN, which among the si_codes of SIGTRAP means TRAP_BRKPT. */
		if (info.si_code != SI_SIGIO || info.si_fd != event_.fd())
			fail("a SIGTRAP with si_code %d, not the event's", info.si_code);
		if (arrived() >= expected)
			return wakeups;
	}
}

void Tracee::step()
{
	resume(PTRACE_SINGLESTEP);
	stopped_by(SIGTRAP);
}

std::vector<Registers> Tracee::step_through_a_lap()
{
	const auto at = [](Place *place) { return reinterpret_cast<uintptr_t>(place); };
	std::vector<Registers> oracle;

	while (oracle.size() < LAP) {
		step();

		Registers now = registers();

		if (now.pc == at(here) || now.pc == at(there))
			oracle.push_back(now);
	}
	step(); /* the last arrival is over */
	return oracle;
}

Registers Tracee::registers() const
{
	user_regs_struct registers = registers_of(child_.pid());

	return { pc_of(registers), first_arguments(registers) };
}

uint64_t Tracee::arrived() const
{
	return ptrace(PTRACE_PEEKDATA, child_.pid(), &arrivals, nullptr);
}

uint64_t Tracee::end()
{
	event_.disable();
	ptrace(PTRACE_POKEDATA, child_.pid(), &finish, 1);
	resume(PTRACE_CONT);
	EXPECT_EQ(child_.wait(), 0, "wait status at the tracee's end");
	return event_.count();
}

void Tracee::resume(int request)
{
	if (ptrace(static_cast<__ptrace_request>(request), child_.pid(), nullptr, nullptr))
		setup_failed("ptrace to resume the tracee", errno);
}

pid_t Tracee::stopped_by(int sig)
{
	int status = child_.wait();

	if (!WIFSTOPPED(status) || WSTOPSIG(status) != sig)
		fail("the tracee: wait status %#x, not stopped by signal %d", status, sig);
	return child_.pid();
}
