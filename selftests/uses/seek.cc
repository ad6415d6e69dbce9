// SPDX-License-Identifier: GPL-2.0
/*
 * Seek: run a process to the n-th arrival at an address with given registers, as the
 * record-and-replay debugger rr does. The kernel turns away every other arrival, so that the
 * debugger wakes once, however hot the loop: one stop, and not one stop an iteration.
 *
 * Recipe: an execute breakpoint on the tracee, with O_ASYNC, F_SETSIG to SIGTRAP and F_SETOWN_EX
 * to the tracee's thread, so that an accepted hit is a signal that its tracer sees before the
 * tracee does; the condition in the program's globals; PERF_EVENT_IOC_MODIFY_ATTRIBUTES to go to
 * another address under the same program; PTRACE_CONT and one waitpid().
 */
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <elf.h>
#include <sched.h>

#include <array>
#include <random>
#include <vector>

#include "lib/child.h"
#include "lib/cpus.h"
#include "uses/uses.h"

/* The tracee: laps of LAP arrivals, each at one of two places; every lap is like the first. */
static constexpr uint64_t LAP = 80;
static volatile uint64_t arrivals, finish;

using Place = void(uint64_t, uint64_t, uint64_t, uint64_t);

[[gnu::noipa]] static void here(uint64_t, uint64_t, uint64_t, uint64_t)
{
	arrivals = arrivals + 1;
}

[[gnu::noipa]] static void there(uint64_t, uint64_t, uint64_t, uint64_t)
{
	arrivals = arrivals + 1;
}

static int run_laps()
{
	ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
	raise(SIGSTOP);
	while (!finish) {
		for (uint64_t i = 0; i < LAP; i++) {
			uint64_t noise = (i * 0x9e3779b97f4a7c15) >> 32;

			(noise & 1 ? here : there)(i / 16, i % 3, noise >> 1 & 3, noise >> 3 & 3);
		}
	}
	return 0;
}

/* What the tracer knows of a stop: the program counter and the first four arguments. */
struct Registers {
	uint64_t pc;
	std::array<uint64_t, 4> arguments;

	bool operator==(const Registers &) const = default;
	/* At the same place, and equal in the arguments that matter. */
	bool matches(const Registers &other, uint32_t matters) const
	{
		bool same = pc == other.pc;

		for (size_t i = 0; i < arguments.size(); i++)
			same &= !(matters >> i & 1) || arguments[i] == other.arguments[i];
		return same;
	}
};

class Tracee {
public:
	Tracee()
		/* They only ever wait for each other: on two CPUs they are slower. */
		: child_((run_on(sched_getcpu()), run_laps))
		, attr_(breakpoint(here))
		, event_(attr_, stopped_by(SIGSTOP))
	{
		event_.async(SIGTRAP, child_.pid());
		event_.must_attach(uses_);
	}

	/* Runs to the @nth arrival that matches; returns how often the tracer was woken for it. */
	uint64_t seek(const Registers &wanted, uint32_t matters, uint64_t nth, uint64_t expected)
	{
		volatile auto *globals = uses_.globals();

		for (size_t i = 0; i < wanted.arguments.size(); i++)
			globals->seek_values[i] = wanted.arguments[i];
		globals->seek_matters = matters;
		globals->seek_nth = nth;
		globals->seek_seen = 0;
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

	void step()
	{
		resume(PTRACE_SINGLESTEP);
		stopped_by(SIGTRAP);
	}

	Registers registers() const
	{
		user_regs_struct r;
		iovec whole = { &r, sizeof(r) };

		if (ptrace(PTRACE_GETREGSET, child_.pid(), NT_PRSTATUS, &whole))
			setup_failed("PTRACE_GETREGSET", errno);
#ifdef __x86_64__
		return { r.rip, { r.rdi, r.rsi, r.rdx, r.rcx } };
#else
		return { r.pc, { r.regs[0], r.regs[1], r.regs[2], r.regs[3] } };
#endif
	}

	/* Arrivals before this one. */
	uint64_t arrived() const
	{
		return ptrace(PTRACE_PEEKDATA, child_.pid(), &arrivals, nullptr);
	}

	/* Lets it run to its end, which no stop may precede. Returns the hits counted. */
	uint64_t end()
	{
		event_.disable();
		ptrace(PTRACE_POKEDATA, child_.pid(), &finish, 1);
		resume(PTRACE_CONT);
		EXPECT_EQ(child_.wait(), 0, "wait status at the tracee's end");
		return event_.count();
	}

private:
	void resume(int request)
	{
		if (ptrace(static_cast<__ptrace_request>(request), child_.pid(), nullptr, nullptr))
			setup_failed("ptrace to resume the tracee", errno);
	}
	pid_t stopped_by(int sig)
	{
		int status = child_.wait();

		if (!WIFSTOPPED(status) || WSTOPSIG(status) != sig)
			fail("the tracee: wait status %#x, not stopped by signal %d", status, sig);
		return child_.pid();
	}

	Uses uses_{ "seek" };
	Child child_;
	perf_event_attr attr_;
	Event event_;
};

/* What single-stepping through the first lap tells: where each arrival is, with which registers. */
static std::vector<Registers> step_through_a_lap(Tracee &tracee)
{
	const auto at = [](Place *place) { return reinterpret_cast<uintptr_t>(place); };
	std::vector<Registers> oracle;

	while (oracle.size() < LAP) {
		tracee.step();

		Registers now = tracee.registers();

		if (now.pc == at(here) || now.pc == at(there))
			oracle.push_back(now);
	}
	tracee.step(); /* the last arrival is over */
	return oracle;
}

TEST("uses.seek", "C1", "a debugger that seeks to one of many arrivals wakes once")
{
	Tracee tracee;
	std::vector<Registers> oracle = step_through_a_lap(tracee);
	/* The last arrival of the second lap, by its place and its first argument alone. */
	const uint64_t target = 2 * LAP - 1;
	const Registers &wanted = oracle.back();
	uint64_t nth = 0, hits = 0;

	for (const Registers &arrival : oracle) {
		nth += arrival.matches(wanted, 1 << 0);
		hits += arrival.matches(wanted, 0);
	}
	EXPECT_EQ(tracee.seek(wanted, 1 << 0, nth, target), 1, "wakeups of the tracer");
	EXPECT_EQ(tracee.arrived(), target, "arrivals before the one it landed on");
	EXPECT_TRUE(tracee.registers() == wanted, "registers as the oracle has them");
	EXPECT_EQ(tracee.end(), hits, "hits counted");
}

TEST("uses.seek.random", "C1", "1000 random conditions land on the arrival the oracle names")
{
	constexpr int CONDITIONS = 1000;
	Tracee tracee;
	std::vector<Registers> oracle = step_through_a_lap(tracee);
	std::mt19937_64 random(1);
	uint64_t hits = 0;

	for (uint64_t i = 0, last = LAP - 1; i < CONDITIONS; i++) {
		/* Within a lap from the last one; any of the arguments matter, or none. */
		const uint64_t target = last + 1 + random() % LAP;
		const uint32_t matters = random() % 16;
		const Registers &wanted = oracle[target % LAP];
		uint64_t nth = 0;

		while (++last <= target) {
			nth += oracle[last % LAP].matches(wanted, matters);
			hits += oracle[last % LAP].matches(wanted, 0);
		}
		last = target;

		uint64_t wakeups = tracee.seek(wanted, matters, nth, target);

		EXPECT_EQ(wakeups, 1, "wakeups of the tracer for one seek");
		if (tracee.arrived() != target || tracee.registers() != wanted)
			fail("seek %llu landed on arrival %llu, not on %llu",
			     static_cast<unsigned long long>(i),
			     static_cast<unsigned long long>(tracee.arrived()),
			     static_cast<unsigned long long>(target));
		if (wakeups != 1)
			return;
	}
	EXPECT_EQ(tracee.end(), hits, "hits counted, most of them rejected");
}
