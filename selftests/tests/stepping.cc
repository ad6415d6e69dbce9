// SPDX-License-Identifier: GPL-2.0
/*
 * C13: the instruction at a breakpoint is executed once for each hit, whether a tracer stops there
 * or steps from there, or the task handles a signal there. x86 has RF for this; arm64 has to
 * disable its breakpoints and single-step the instruction.
 */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <functional>

#include "lib/ptrace.h"
#include "tests/common.h"
#include "tests/stepping.h"

using namespace stepping;

/* Each instruction at which a test expects a stop has a label. */
asm(".pushsection .text\n"
    ".globl stepped_1, stepped_2, stepped_3, store_0, store_1, store_2, store_3\n"
    ".globl call_0, call_1, call_2\n"
    ".balign 16\n"
    "stepped_1: nop\n"
    "stepped_2: nop\n"
    "stepped_3: nop\n"
    "ret\n"
    ".balign 16\n"
    "store_0: nop\n"
    "store_1: " ASM_STORE "store_2: nop\n"
    "store_3: nop\n"
    "ret\n"
    ".balign 16\n"
    "call_0: " ASM_SET_UP_SYSCALL "call_1: " ASM_SYSCALL "call_2: ret\n"
    ".popsection\n");

/*
 * Calls @check for a tracee that executes @place and, except for system calls, for 32-bit tracees.
 */
static void in_tracees(const Place &place,
		       const std::function<void(CheckedTracee &, const Spot &)> &check)
{
	CheckedTracee tracee(place.run);

	check(tracee, spot_of(place));
	if (place.run == system_call)
		return;
	for (const InstructionSet &set : instruction_sets()) {
		if (!can_execute(set))
			continue;

		CompatTracee compat(set);

		check(compat, spot_of(set, place));
	}
}

static void check_continue(const Place &place, const Report &report)
{
	in_tracees(place, [&](CheckedTracee &tracee, const Spot &spot) {
		SignalingEvent hits(spot.attr, report, tracee.pid());

		for (uint64_t i = 0; i < HITS; i++)
			tracee.resume_until(PTRACE_CONT, 0, hits.signal, spot.at);
		tracee.resume(PTRACE_CONT);
		tracee.must_have_exited();
		EXPECT_EQ(hits.count(), HITS, "hits counted");
	});
}

static void check_step(const Place &place, const Report &report)
{
	in_tracees(place, [&](CheckedTracee &tracee, const Spot &spot) {
		SignalingEvent hits(spot.attr, report, tracee.pid());

		for (uint64_t i = 0; i < HITS; i++) {
			tracee.resume_until(PTRACE_CONT, 0, hits.signal, spot.at);
			tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, spot.next);
			if (spot.after)
				tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, spot.after);
		}
		tracee.resume(PTRACE_CONT);
		tracee.must_have_exited();
		EXPECT_EQ(hits.count(), HITS, "hits counted");
	});
}

/* Debuggers execute other code at a hit to call a function, and rr to execute a system call. */
static void check_injected(const Place &place, const Report &report)
{
	in_tracees(place, [&](CheckedTracee &tracee, const Spot &spot) {
		SignalingEvent hits(spot.attr, report, tracee.pid());

		for (uint64_t i = 0; i < HITS; i++) {
			tracee.resume_until(PTRACE_CONT, 0, hits.signal, spot.at);
			for (uint64_t times = 0; times <= i % 2; times++) {
				tracee.inject(spot.next);
				tracee.must_have_stopped_by(SIGTRAP);
			}
		}
		tracee.resume(PTRACE_CONT);
		tracee.must_have_exited();
		EXPECT_EQ(hits.count(), HITS, "hits counted");
	});
}

static const bool added = [] {
	add_tests("stepping.continue", "a tracer that continues from hits of ", " sees every hit",
		  check_continue);
	add_tests("stepping.step", "a tracer that steps from hits of ",
		  " advances one instruction per step", check_step);
	add_tests("stepping.injected", "a tracer that executes other code at hits of ",
		  " sees every hit once", check_injected);
	return true;
}();

TEST("stepping.injected.moved", "C13",
     "after a tracer skips the instruction of a hit, that instruction hits again, even if the "
     "tracer executes other code there first")
{
	CheckedTracee tracee(call);
	SignalingEvent first(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid());
	SignalingEvent hits(breakpoint(stepped_2), SETSIG_ALONE, tracee.pid());

	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
		tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, stepped_2);
		tracee.inject(address(stepped_3));
		tracee.must_have_stopped_by(SIGTRAP);
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_2);
		tracee.set_pc(address(stepped_3));
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
}

/* At a hit the tracer starts a call, which hits another breakpoint. Then it abandons the call. */
static void in_nested_calls(const std::function<void(CheckedTracee &)> &at_inner_hit)
{
	CheckedTracee tracee(call);
	SignalingEvent outer(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid()),
		inner(breakpoint(stepped_3), SETSIG_ALONE, tracee.pid());

	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);

		const user_regs_struct saved = registers_of(tracee.pid());

		tracee.set_pc(address(stepped_2));
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_3);
		at_inner_hit(tracee);
		set_registers(tracee.pid(), saved);
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_3);
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(outer.count(), HITS, "hits of the outer breakpoint");
	EXPECT_EQ(inner.count(), 2 * HITS, "hits of the inner breakpoint");
}

TEST("stepping.injected.abandoned", "C13",
     "if a tracer starts a call at a hit and abandons it at another breakpoint, the first hit is "
     "not reported again")
{
	in_nested_calls([](CheckedTracee &) {});
}

TEST("stepping.injected.nested", "C13",
     "if a tracer executes other code at a breakpoint in a call that it started at a hit, neither "
     "hit is reported again")
{
	in_nested_calls([](CheckedTracee &tracee) {
		tracee.inject(address(stepped_2));
		tracee.must_have_stopped_by(SIGTRAP);
	});
}

TEST("stepping.registers", "C15",
     "the registers that a tracer reads do not show that the kernel steps over a hit")
{
	for (const Place &place : places)
		in_tracees(place, [&](CheckedTracee &tracee, const Spot &spot) {
			SignalingEvent hits(spot.attr, SETSIG_ALONE, tracee.pid());
			const uint64_t before = tracee.flags() & STEP_FLAG;

			tracee.resume_until(PTRACE_CONT, 0, hits.signal, spot.at);
			EXPECT_HEX(tracee.flags() & STEP_FLAG, before, "the flag in the registers");
			tracee.resume(PTRACE_CONT, SIGKILL);
		});
}

/*
 * A task that stops at a hit is scheduled in again before the step. Because its event is pinned,
 * the CPU's other events are then scheduled in again, too.
 */
TEST("stepping.kernel_breakpoint", "C12",
     "the kernel's step over the hit of a task does not disable breakpoints in the kernel")
{
	const int cpu = usable_cpus().front();
	perf_event_attr pinned = breakpoint(stepped_1);

	run_on(cpu);
	pinned.pinned = 1;

	Event in_kernel(breakpoint_in_kernel(SYSCALL_SYMBOL("getpriority")), -1, cpu);
	CheckedTracee tracee([] {
		for (uint64_t i = 0; i < HITS; i++) {
			stepped_1();
			getpriority(PRIO_PROCESS, 0);
		}
		return 0;
	});
	SignalingEvent hits(pinned, SETSIG_ALONE, tracee.pid());

	in_kernel.enable();
	for (uint64_t i = 0; i < HITS; i++)
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_GE(in_kernel.count(), HITS, "hits of the breakpoint in the kernel");
}

TEST("stepping.walk", "C13", "a tracer that single-steps all the way stops at each breakpoint once")
{
	CheckedTracee tracee(call);
	SignalingEvent hits(breakpoint(stepped_2), SETSIG_PROGRAM, tracee.pid());
	uint64_t met = 0;

	for (uint64_t last = 0, pc; tracee.resume(PTRACE_SINGLESTEP); last = pc) {
		pc = tracee.pc();
		met += pc == last && pc == address(stepped_2);
		if (pc != last && last == address(stepped_2))
			EXPECT_HEX(pc, address(stepped_3), "pc after the step");
	}
	tracee.must_have_exited();
	EXPECT_EQ(met, HITS, "stops at the breakpoint");
	EXPECT_EQ(hits.count(), HITS, "hits counted");
}

TEST("stepping.rejected_between", "C13",
     "a tracer can step and continue across a breakpoint whose hits are rejected")
{
	CheckedTracee tracee(call);
	SignalingEvent first(breakpoint(stepped_1), SETSIG_PROGRAM, tracee.pid());
	SignalingEvent last(breakpoint(stepped_3), SETSIG_PROGRAM, tracee.pid());
	Event rejected(breakpoint(stepped_2), tracee.pid());
	Filter none;

	rejected.async(SETSIG, tracee.pid());
	rejected.enable(none);
	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
		if (i & 1)
			tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, stepped_2);
		if ((i & 3) == 3)
			tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, stepped_3);
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_3);
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(first.count(), HITS, "hits of the first breakpoint");
	EXPECT_EQ(rejected.count(), HITS, "hits of the rejected breakpoint");
	EXPECT_EQ(last.count(), HITS, "hits of the last breakpoint");
}

TEST("stepping.detach", "C13",
     "after a tracer detaches at a hit, the hit is not repeated, and later hits are counted")
{
	CheckedTracee tracee(call);
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid());
	CountingEvent next(breakpoint(stepped_2), tracee.pid());

	tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
	hits.event().disable();

	CountingEvent rest(breakpoint(stepped_1), tracee.pid());

	tracee.resume(PTRACE_DETACH);
	tracee.must_have_exited();
	EXPECT_EQ(rest.count(), HITS - 1, "hits after the tracer detached");
	EXPECT_EQ(next.count(), HITS, "executions of the next instruction");
}

TEST("stepping.untraced", "C13",
     "the kernel's step over a system call instruction does not stop a traced task")
{
	CheckedTracee tracee(system_call);
	CountingEvent hits(at_system_call(), tracee.pid()), next(breakpoint(call_2), tracee.pid());

	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(next.count(), HITS, "returns from the system call");

	/* System calls that do not return. */
	CheckedTracee execs([] {
		char self[] = "/proc/self/exe", help[] = "--help",
		     *argv[] = { self, help, nullptr };

		return int(call_0(SYS_execve, long(self), long(argv), long(argv + 2)));
	});
	CheckedTracee exits([] { return int(call_0(SYS_exit_group, 0, 0, 0)); });
	CountingEvent exec(at_system_call(), execs.pid()), exit(at_system_call(), exits.pid());

	execs.resume_until(PTRACE_CONT, 0, SIGTRAP, nullptr);
	execs.resume(PTRACE_CONT);
	execs.must_have_exited();
	EXPECT_EQ(exec.count(), 1, "hits of execve()");
	exits.resume(PTRACE_CONT);
	exits.must_have_exited();
	EXPECT_EQ(exit.count(), 1, "hits of exit_group()");
}

TEST("stepping.counted", "C13",
     "a breakpoint on a system call instruction counts each call once, and nothing else")
{
	CountingEvent hits(at_system_call()), next(breakpoint(call_2));

	EXPECT_VALUE(system_call(), 0, "result of the calls");
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(next.count(), HITS, "returns from the system call");

	/*
	 * The signal arrives after the instruction: nothing must be stepped over after the handler.
	 */
	const Handler handler(SIGUSR1, count_other);

	for (uint64_t i = 0; i < HITS; i++)
		call_0(SYS_kill, getpid(), SIGUSR1, 0);
	EXPECT_EQ(other_handled, HITS, "signals");
	EXPECT_EQ(hits.count(), 2 * HITS, "hits of kill()");
	EXPECT_EQ(next.count(), 2 * HITS, "returns from kill()");

	/*
	 * The child starts after the instruction, without a breakpoint and without a pending step.
	 */
	const pid_t child = call_0(SYS_clone, SIGCHLD, 0, 0);

	if (!child)
		_exit(call());
	EXPECT_STATUS(wait_for(child), 0, "the child");
	EXPECT_EQ(hits.count(), 2 * HITS + 1, "hits of clone()");
	EXPECT_EQ(next.count(), 2 * HITS + 1, "returns from clone() in the parent");
}

/*
 * A tracer that writes registers or steps while its tracee is stopped in a system call must not
 * affect the instruction after the system call.
 */
static void check_system_call_stop(bool writes, __ptrace_request onwards)
{
	CheckedTracee tracee(system_call);
	SignalingEvent hits(at_system_call(), SETSIG_ALONE, tracee.pid());
	CountingEvent next(breakpoint(call_2), tracee.pid());

	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, call_1);
		for (int stop = 0; stop < 2; stop++) {
			tracee.resume_until(PTRACE_SYSCALL, 0, SIGTRAP, call_2);
			if (writes)
				tracee.write_registers();
		}
		EXPECT_EQ(next.count(), i, "returns from earlier system calls");
		if (onwards == PTRACE_SINGLESTEP)
			tracee.resume_until(onwards, 0, SIGTRAP, nullptr);
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(next.count(), HITS, "returns from the system call");
}

TEST_OF("stepping.system_call_stop.writes", "C13",
	"a tracer that writes registers at a system call stop does not hide a breakpoint at the "
	"next instruction",
	check_system_call_stop(true, PTRACE_CONT))

TEST_OF("stepping.system_call_stop.steps", "C13",
	"a tracer that steps from a system call stop does not hide a breakpoint at the next "
	"instruction",
	check_system_call_stop(false, PTRACE_SINGLESTEP))

/*
 * The kernel restarts the system call after a signal without a handler. The restarted call sleeps
 * until the same time as before.
 */
TEST("stepping.restarted", "C13", "a system call that is restarted hits its breakpoint again")
{
	constexpr uint64_t TIMES = 5;
	CheckedTracee tracee([] {
		const timespec LONG = { 20, 0 };

		return int(call_0(SYS_nanosleep, long(&LONG), 0, 0));
	});
	SignalingEvent hits(at_system_call(), SETSIG_ALONE, tracee.pid());
	CountingEvent next(breakpoint(call_2), tracee.pid());

	for (uint64_t i = 0; i < TIMES; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, call_1);
		tracee.resume_until(PTRACE_SYSCALL, 0, SIGTRAP, call_2);
		if (kill(tracee.pid(), SIGUSR1))
			setup_failed("kill", errno);
		tracee.resume_until(PTRACE_SYSCALL, 0, SIGTRAP, call_2);
		/* x86 resets the pc for the restart after this stop, arm64 before it. */
		tracee.resume_until(PTRACE_CONT, 0, SIGUSR1, nullptr);
	}
	tracee.resume_until(PTRACE_CONT, 0, SETSIG, call_1);
	tracee.resume(PTRACE_CONT, SIGKILL);
	EXPECT_STATUS(tracee.status(), SIGKILL, "the tracee");
	EXPECT_EQ(hits.count(), TIMES + 1, "hits counted");
	EXPECT_EQ(next.count(), 0, "returns from the system call");
}

asm(".pushsection .text\n"
    ".globl emulated_1, emulated_2\n"
    ".balign 16\n"
    "emulated_1: " ASM_EMULATED "emulated_2: nop\n"
    "ret\n"
    ".popsection\n");

extern "C" {
void emulated_1();
void emulated_2();
}

TEST("stepping.emulated", "C13",
     "the step over an instruction that the kernel emulates ends at the next instruction")
{
	if (!HITS_AFTER_EMULATED)
		unavailable("no hit after an emulated instruction, see Known issues");

	CountingEvent emulated(breakpoint(emulated_1)), next(breakpoint(emulated_2));

	for (uint64_t i = 0; i < HITS; i++)
		emulated_1();
	EXPECT_EQ(emulated.count(), HITS, "hits of the emulated instruction");
	EXPECT_EQ(next.count(), HITS, "hits of the next instruction");
}
