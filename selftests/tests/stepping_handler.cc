// SPDX-License-Identifier: GPL-2.0
/*
 * C13: a task that handles a signal at the instruction with a breakpoint executes the instruction
 * once for each hit, wherever the handler returns to.
 */
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <optional>

#include "lib/arch.h"
#include "lib/compat.h"
#include "lib/ptrace.h"
#include "lib/random.h"
#include "tests/common.h"
#include "tests/stepping.h"

using namespace stepping;

static void count_signal(int, siginfo_t *, void *)
{
	count(handled);
}

/* The 32-bit program handles only one signal. */
static void check_compat_handler(const Place &place, const Report &report)
{
	for (const InstructionSet &set : instruction_sets()) {
		if (!can_execute(set))
			continue;

		CompatTracee tracee(set);
		Event event(spot_of(set, place).attr, tracee.pid());
		std::optional<Filter> filter;

		if (report.program) {
			filter.emplace();
			filter->returns(1);
			event.must_attach(*filter);
		}
		event.async(COMPAT_SIGNAL, tracee.pid());
		event.enable();
		tracee.resume(PTRACE_DETACH);
		tracee.must_have_exited(HITS);
		EXPECT_EQ(event.count(), HITS, "hits counted in a 32-bit task");
	}
}

static void check_handler(const Place &place, const Report &report)
{
	SignalingEvent hits(place.attr(), report);
	CountingEvent entries(breakpoint(count_signal));
	const Handler handler(hits.signal, count_signal);

	EXPECT_VALUE(place.run(), 0, "result of the calls");
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	/* The step over the hit must not skip a breakpoint at the handler. */
	EXPECT_EQ(entries.count(), HITS, "hits of a breakpoint on the handler's first instruction");
	if (place.run != system_call && !report.sigtrap)
		check_compat_handler(place, report);
}

static const bool added = [] {
	add_tests("stepping.handler", "a thread that handles hits of ",
		  " receives one signal per hit", check_handler);
	return true;
}();

static const uint8_t *returns_to;

/* The system call instruction of the sigreturn() to which handlers return. */
static uint64_t sigreturn_call()
{
	constexpr int FAR = 32;
	const Handler handler(SIGUSR1, [](int, siginfo_t *, void *) {
		returns_to = static_cast<const uint8_t *>(__builtin_return_address(0));
	});

	raise(SIGUSR1);
	for (int i = 0; i < FAR; i += INSTRUCTION_ALIGNMENT)
		if (!memcmp(returns_to + i, reinterpret_cast<const void *>(call_1),
			    address(call_2) - address(call_1)))
			return reinterpret_cast<uintptr_t>(returns_to) + i;
	fail("expected sigreturn() where a handler returns to, got another instruction");
	return 0;
}

TEST("stepping.handler.sigreturn", "C13",
     "a breakpoint on sigreturn() does not hide one at the instruction it returns to")
{
	const uint64_t at = sigreturn_call();
	const Handler handler(SIGUSR1, count_other);
	CountingEvent returns(
		breakpoint(Access::EXECUTE, reinterpret_cast<void *>(at), EXECUTE_LENGTH));
	CountingEvent next(breakpoint(call_2));

	for (uint64_t i = 0; i < HITS; i++)
		call_0(SYS_kill, getpid(), SIGUSR1, 0);
	EXPECT_EQ(other_handled, HITS, "signals");
	EXPECT_EQ(returns.count(), HITS, "hits of sigreturn()");
	EXPECT_EQ(next.count(), HITS, "hits of the instruction that sigreturn() returns to");
}

/* A breakpoint and a watchpoint on the same instruction, each with its own signal. */
TEST("stepping.handler.both", "C13",
     "an instruction that hits a breakpoint and a watchpoint is reported once for each")
{
	SignalingEvent call(at_store(), SETSIG_ALONE);
	Event word(at_word());

	word.async(SIGUSR1, gettid());
	word.enable();

	const Handler handler(SETSIG, count_signal);
	const Handler other(SIGUSR1, count_other);

	EXPECT_VALUE(store(), 0, "result of the stores");
	EXPECT_EQ(call.count(), HITS, "hits of the breakpoint");
	EXPECT_EQ(handled, HITS, "signals of the breakpoint");
	EXPECT_EQ(word.count(), HITS, "hits of the watchpoint");
	EXPECT_EQ(other_handled, HITS, "signals of the watchpoint");
}

static Event *removed;

TEST("stepping.handler.removes", "C13",
     "a handler may disable its breakpoint, and a watchpoint on the same instruction is still hit")
{
	SignalingEvent call(at_store(), SETSIG_ALONE);
	Event word(at_word());

	removed = &call.event();
	word.async(SIGUSR1, gettid());
	word.enable();

	const Handler handler(SETSIG, [](int, siginfo_t *, void *) {
		count_signal(0, nullptr, nullptr);
		removed->disable();
	});
	const Handler other(SIGUSR1, count_other);

	for (uint32_t i = 0; i < HITS; i++) {
		call.event().enable();
		store_1(&words.watched, i);
		words.next = i;
	}
	EXPECT_EQ(call.count(), HITS, "hits of the breakpoint");
	EXPECT_EQ(handled, HITS, "signals of the breakpoint");
	EXPECT_EQ(word.count(), HITS, "hits of the watchpoint");
	EXPECT_EQ(other_handled, HITS, "signals of the watchpoint");
}

static sigjmp_buf before;

TEST("stepping.handler.longjmp", "C13",
     "a handler may leave by siglongjmp(), and the next hit is reported as usual")
{
	SignalingEvent hits(breakpoint(stepped_2), SETSIG_ALONE);
	CountingEvent next(breakpoint(stepped_3));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *) {
		count_signal(0, nullptr, nullptr);
		siglongjmp(before, 1);
	});

	for (std::atomic<uint64_t> i = 0; i < HITS; i++)
		if (!sigsetjmp(before, 1))
			stepped_1();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	EXPECT_EQ(next.count(), 0, "executions of the next instruction");
}

static std::atomic<int> depth;

TEST("stepping.handler.recursion", "C13", "a handler may hit its own breakpoint")
{
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE);
	CountingEvent next(breakpoint(stepped_2));
	const Handler handler(
		SETSIG,
		[](int, siginfo_t *, void *) {
			count_signal(0, nullptr, nullptr);
			if (depth < 3) {
				depth++;
				stepped_1();
				depth--;
			}
		},
		SA_NODEFER);

	call();
	EXPECT_EQ(hits.count(), 4 * HITS, "hits counted");
	EXPECT_EQ(handled, 4 * HITS, "signals");
	EXPECT_EQ(next.count(), 4 * HITS, "executions of the next instruction");
}

TEST("stepping.handler.blocked", "C13",
     "a hit in its own handler, where its signal is blocked, is reported after the handler")
{
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE);
	CountingEvent next(breakpoint(stepped_2));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *) {
		count(handled);
		if (handled % 2)
			stepped_1();
	});

	call();
	EXPECT_EQ(hits.count(), 2 * HITS, "hits counted");
	EXPECT_EQ(handled, 2 * HITS, "signals");
	EXPECT_EQ(next.count(), 2 * HITS, "executions of the next instruction");
}

TEST("stepping.handler.nested", "C13",
     "a hit is reported once even if another signal interrupts its handler")
{
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE);
	CountingEvent next(breakpoint(stepped_2));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *) {
		count_signal(0, nullptr, nullptr);
		raise(SIGUSR1);
	});
	const Handler other(SIGUSR1, count_other);

	call();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	EXPECT_EQ(other_handled, HITS, "SIGUSR1s");
	EXPECT_EQ(next.count(), HITS, "executions of the next instruction");
}

TEST("stepping.handler.two_frames", "C13",
     "a hit that sends two signals is reported once to each handler")
{
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE);
	Event second(breakpoint(stepped_1));
	CountingEvent next(breakpoint(stepped_2));

	second.async(SIGUSR1, gettid());
	second.enable();

	const Handler handler(SETSIG, count_signal);
	const Handler other(SIGUSR1, count_other);

	call();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	EXPECT_EQ(other_handled, HITS, "SIGUSR1s");
	EXPECT_EQ(next.count(), HITS, "executions of the next instruction");
}

/* The instruction that hit is not executed, and no step over it must remain pending. */
TEST("stepping.handler.goes_elsewhere", "C13",
     "a handler may change the address at which its program continues")
{
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE);
	CountingEvent skipped(breakpoint(stepped_2)), next(breakpoint(stepped_3));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *context) {
		count_signal(0, nullptr, nullptr);
		pc_of(*static_cast<ucontext_t *>(context)) = address(stepped_3);
	});

	call();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	EXPECT_EQ(skipped.count(), 0, "executions of the skipped instruction");
	EXPECT_EQ(next.count(), SIGRETURN_RESTORES_HIT_FLAGS ? 0 : HITS,
		  "hits at the address where it continues");
}

/* The frame of SIGUSR1 is at the address of the frame whose handler did not return. */
TEST("stepping.handler.left_before", "C13",
     "a signal at a breakpoint does not hide the hit, even after a handler that did not return")
{
	CheckedTracee tracee([] {
		const Handler handler(SETSIG,
				      [](int, siginfo_t *, void *) { siglongjmp(before, 1); });
		const Handler other(SIGUSR1, count_other);

		for (std::atomic<uint64_t> i = 0; i < HITS; i++)
			if (!sigsetjmp(before, 1))
				stepped_1();
		return 0;
	});
	SignalingEvent first(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid());
	SignalingEvent hits(breakpoint(stepped_2), SETSIG_ALONE, tracee.pid());

	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, i ? SETSIG : 0, SETSIG, stepped_1);
		tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, stepped_2);
		/* SIGUSR1 arrives before the instruction is executed. */
		tracee.resume_until(PTRACE_CONT, SIGUSR1, SETSIG, stepped_2);
	}
	tracee.resume(PTRACE_CONT, SETSIG);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
}

TEST("stepping.handler.forged", "C13",
     "a signal frame in which a program sets the flag of a hit does not hide a watchpoint")
{
	SignalingEvent hits(breakpoint(store_0), SETSIG_ALONE);
	CountingEvent word(at_word());
	const Handler handler(SETSIG, [](int, siginfo_t *, void *context) {
		count_signal(0, nullptr, nullptr);
		pc_of(*static_cast<ucontext_t *>(context)) = address(store_1);
		flags_of(*static_cast<ucontext_t *>(context)) |= HIT_FLAGS;
	});

	for (uint32_t i = 0; i < HITS; i++) {
		store_0(&words.watched, i);
		words.next = i;
	}
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	EXPECT_EQ(word.count(), HITS, "hits of the watchpoint");
}

static std::atomic<pid_t> forked;

TEST("stepping.handler.forks", "C13",
     "a child that is forked by a handler returns from it without another hit")
{
	perf_event_attr attr = breakpoint(stepped_1), entered = breakpoint(stepped_2);

	attr.inherit = entered.inherit = 1;

	SignalingEvent hits(attr, SIGTRAP_ALONE);
	CountingEvent next(entered);
	const Handler handler(SIGTRAP, [](int, siginfo_t *, void *) {
		count_signal(0, nullptr, nullptr);
		if (!forked)
			forked = fork();
	});

	stepped_1();
	if (!forked)
		_exit(int(handled));
	EXPECT_STATUS(wait_for(forked), W_EXITCODE(1, 0),
		      "the child, whose exit code is its number of signals");
	EXPECT_EQ(hits.count(), 1, "hits counted");
	EXPECT_EQ(next.count(), 2, "executions of the next instruction");
}

static int call_handled()
{
	const Handler handler(SETSIG, count_signal);

	call();
	return handled != HITS;
}

TEST("stepping.handler.traced", "C13",
     "a tracer that passes on the signal of a hit is not stopped by that hit again")
{
	CheckedTracee tracee(call_handled);
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid());

	tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
	for (uint64_t i = 1; i < HITS; i++)
		tracee.resume_until(PTRACE_CONT, SETSIG, SETSIG, stepped_1);
	tracee.resume(PTRACE_CONT, SETSIG);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
}

TEST("stepping.handler.traced_step", "C13",
     "a tracer can single-step into the handler of a hit and back out of it")
{
	CheckedTracee tracee(call_handled);
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid());
	CountingEvent next(breakpoint(stepped_2), tracee.pid());

	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
		tracee.resume_until(PTRACE_SINGLESTEP, SETSIG, SIGTRAP, nullptr);
		EXPECT_HEX(tracee.pc(), address(count_signal), "pc at the entry of the handler");
		for (int steps = 0; steps < 300 && tracee.pc() != address(stepped_2); steps++)
			tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, nullptr);
		EXPECT_HEX(tracee.pc(), address(stepped_2), "pc after the step");
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(next.count(), HITS, "executions of the next instruction");
}

/* The tracer's step to a breakpoint must not count as the step over it. */
TEST("stepping.handler.stepped_onto", "C13",
     "a signal that arrives at a breakpoint before it is hit does not hide the hit")
{
	CheckedTracee tracee(call_handled);
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE, tracee.pid());
	CountingEvent next(breakpoint(stepped_2), tracee.pid());

	for (uint64_t i = 0; i < HITS; i++) {
		tracee.resume_until(PTRACE_CONT, 0, SETSIG, stepped_1);
		tracee.resume_until(PTRACE_SINGLESTEP, 0, SIGTRAP, stepped_2);
		EXPECT_EQ(next.count(), i,
			  "hits of the next breakpoint before its instruction is executed");
		tracee.resume_until(PTRACE_SINGLESTEP, SETSIG, SIGTRAP, nullptr);
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(next.count(), HITS, "hits of the next breakpoint");
}

/* ---- all at once */

constexpr uint64_t ROUNDS = 3000;

static std::atomic<uint64_t> abandoned, jumps;
static std::atomic<int> active, in_timer;
static Random rng(1);

static void on_hit(int, siginfo_t *, void *)
{
	count(handled, 10 * ROUNDS);
	active++;
	switch (rng.below(16)) {
	case 0:
		if (in_timer)
			break;
		/* The instructions of all hits whose handlers are active are not executed. */
		jumps++;
		abandoned += active;
		active = 0;
		siglongjmp(before, 1);
	case 1 ... 4:
		if (active < 4)
			stepped_1();
		break;
	case 5:
		sched_yield();
	}
	active--;
}

static timer_t timer;
static std::atomic<bool> over;

/* Start the next timer last, so that a slow machine makes progress between two timers. */
static void on_timer(int, siginfo_t *, void *)
{
	constexpr itimerspec DELAY = { {}, { 0, 1'700'000 } };

	other_handled++;
	in_timer++;
	stepped_1();
	store_1(&words.watched, 0);
	in_timer--;
	if (!over)
		timer_settime(timer, 0, &DELAY, nullptr);
}

TEST("stepping.handler.all", "C13",
     "with nested handlers, siglongjmp() and timers combined, each hit is reported once")
{
	SignalingEvent hits(breakpoint(stepped_1), SETSIG_ALONE);
	CountingEvent next(breakpoint(stepped_2)), call(at_store()), word(at_word());
	const itimerspec now = { {}, { 0, 1 } }, never = {};
	sigevent event = {};
	const Handler handler(SETSIG, on_hit, SA_NODEFER);
	const Handler on_alarm(SIGALRM, on_timer);

	event.sigev_notify = SIGEV_SIGNAL;
	event.sigev_signo = SIGALRM;
	if (timer_create(CLOCK_MONOTONIC, &event, &timer))
		setup_failed("timer_create", errno);
	timer_settime(timer, 0, &now, nullptr);
	for (std::atomic<uint64_t> i = 0; i < ROUNDS; i++) {
		if (!sigsetjmp(before, 1))
			stepped_1();
		store_1(&words.watched, i);
		words.next = i;
	}
	over = true;
	timer_settime(timer, 0, &never, nullptr);
	EXPECT_EQ(hits.count(), handled, "hits counted, one per signal");
	EXPECT_EQ(next.count(), handled - abandoned, "executions of the next instruction");
	EXPECT_EQ(call.count(), ROUNDS + other_handled, "hits of the breakpoint at the store");
	EXPECT_EQ(word.count(), ROUNDS + other_handled, "hits of the watchpoint");
	EXPECT_GT(jumps, 0, "jumps out of the handler");
	EXPECT_GT(other_handled, 0, "timer signals");
}
