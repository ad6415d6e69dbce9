// SPDX-License-Identifier: GPL-2.0
/*
 * C13: the instruction of a breakpoint is executed once for each hit, whether a tracer stops there
 * or steps from there, or the task handles a signal there. x86 has RF for this; arm64 has to
 * disable its breakpoints and single-step the instruction.
 */
#include <setjmp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <optional>

#include "lib/arch.h"
#include "lib/compat.h"
#include "lib/ptrace.h"
#include "lib/random.h"
#include "tests/common.h"

/* Each instruction at which a test expects a stop has a label. */
asm(".pushsection .text\n"
    ".globl stepped_1, stepped_2, stepped_3, store_1, store_2, store_3\n"
    ".globl call_0, call_1, call_2\n"
    ".balign 16\n"
    "stepped_1: nop\n"
    "stepped_2: nop\n"
    "stepped_3: nop\n"
    "ret\n"
    ".balign 16\n"
    "store_1: " ASM_STORE "store_2: nop\n"
    "store_3: nop\n"
    "ret\n"
    ".balign 16\n"
    "call_0: " ASM_SET_UP_SYSCALL "call_1: " ASM_SYSCALL "call_2: ret\n"
    ".popsection\n");

extern "C" {
void stepped_1();
void stepped_2();
void stepped_3();
void store_1(volatile uint32_t *to, uint32_t value);
void store_2();
void store_3();
long call_0(long number, long, long, long);
void call_1();
void call_2();
}

namespace {

template <typename Function> uint64_t address(Function *function)
{
	return reinterpret_cast<uintptr_t>(function);
}

volatile struct {
	uint32_t watched, next;
} words;

/* Code that hits, its event, the pc at the hit, and the next two instructions. */
struct Place {
	const char *name, *title;
	int (*run)();
	perf_event_attr (*attr)();
	void (*at)(), (*next)(), (*after)();
};

int call()
{
	for (uint64_t i = 0; i < HITS; i++)
		stepped_1();
	return 0;
}

int store()
{
	for (uint32_t i = 0; i < HITS; i++) {
		store_1(&words.watched, i);
		if (words.watched != i)
			return 1;
		words.next = i; /* for QEMU's TCG, see breakpoint.cc */
	}
	return 0;
}

int system_call()
{
	for (uint64_t i = 0; i < HITS; i++)
		if (call_0(SYS_getppid, 0, 0, 0) != getppid())
			return 1;
	return 0;
}

perf_event_attr at_call()
{
	return breakpoint(stepped_1);
}

perf_event_attr at_store()
{
	return breakpoint(store_1);
}

perf_event_attr at_word()
{
	return breakpoint(Access::WRITE, &words.watched, sizeof(words.watched));
}

perf_event_attr at_system_call()
{
	return breakpoint(call_1);
}

void (*const store_at)() = reinterpret_cast<void (*)()>(STOPS_BEFORE_ACCESS ? address(store_1)
									    : address(store_2));
const Place places[] = {
	{ "call", "a breakpoint", call, at_call, stepped_1, stepped_2, stepped_3 },
	{ "store", "a watchpoint", store, at_word, store_at,
	  STOPS_BEFORE_ACCESS ? store_2 : store_3, STOPS_BEFORE_ACCESS ? store_3 : nullptr },
	{ "system_call", "a breakpoint on a system call instruction", system_call, at_system_call,
	  call_1, call_2, nullptr },
};

/* How a hit is reported. */
struct Report {
	const char *name, *title;
	bool sigtrap, program;
} const reports[] = {
	{ "setsig", "F_SETSIG", false, false },
	{ "setsig.program", "F_SETSIG and an accepting program", false, true },
	{ "sigtrap", "SIGTRAP", true, false },
	{ "sigtrap.program", "SIGTRAP and an accepting program", true, true },
};

/* An enabled event that sends its signal to the task that hits. */
class SignalingEvent {
public:
	SignalingEvent(const perf_event_attr &attr, const Report &report, pid_t pid = 0)
		: event_(with_sigtrap(attr, report.sigtrap), pid)
		, signal(report.sigtrap ? SIGTRAP : SETSIG)
	{
		if (!report.sigtrap)
			event_.async(SETSIG, pid ?: gettid());
		if (report.program) {
			filter_.emplace();
			filter_->returns(1);
			event_.must_attach(*filter_);
		}
		event_.enable();
	}

	uint64_t count() const { return event_.count(); }
	Event &event() { return event_; }

private:
	Event event_;
	std::optional<Filter> filter_;

public:
	const int signal;
};

/* An enabled event that only counts. */
class CountingEvent : public Event {
public:
	explicit CountingEvent(const perf_event_attr &attr, pid_t pid = 0)
		: Event(attr, pid)
	{
		enable();
	}
};

/* ---- a tracer */

/* A tracee that must stop where it is expected to: otherwise the test fails. */
class CheckedTracee : public Tracee {
public:
	template <typename Body>
	explicit CheckedTracee(Body body)
		: Tracee(body)
	{
		must_have_stopped_by(SIGSTOP);
	}

	void must_have_stopped_by(int sig)
	{
		if (!has_stopped_by(sig))
			fail("expected stopped by %s, got %s: the tracee", signal_name(sig).c_str(),
			     status_text(status()).c_str());
	}

	/* Resumes it with @sig until it stops by @stops_by, at the address @at unless that is 0. */
	void resume_until(__ptrace_request how, int sig, int stops_by, uint64_t at,
			  int line = __builtin_LINE())
	{
		resume(how, sig);
		must_have_stopped_by(stops_by);
		if (at && pc() != at)
			fail("expected pc %#lx, got %#lx: the tracee's stop (line %d)", at, pc(),
			     line);
	}

	void resume_until(__ptrace_request how, int sig, int stops_by, void (*at)(),
			  int line = __builtin_LINE())
	{
		resume_until(how, sig, stops_by, address(at), line);
	}

	void must_have_exited(int code = 0)
	{
		EXPECT_STATUS(status(), W_EXITCODE(code, 0), "the tracee");
	}
};

/* A 32-bit tracee, which has stopped after exec() at the first instruction of its program. */
class CompatTracee : public CheckedTracee {
public:
	explicit CompatTracee(const InstructionSet &set)
		: CheckedTracee([&set] { return exec_compat(set); })
	{
		resume_until(PTRACE_CONT, 0, SIGTRAP, set.entry & ~1);
	}
};

/* The event of a hit, the pc at the hit, and the addresses of the next two instructions. */
struct Spot {
	perf_event_attr attr;
	uint64_t at, next, after;
};

Spot spot_of(const Place &place)
{
	return { place.attr(), address(place.at), address(place.next), address(place.after) };
}

Spot spot_of(const InstructionSet &set, const Place &place)
{
	if (place.run == call)
		return { breakpoint(Access::EXECUTE, reinterpret_cast<void *>(set.at),
				    set.execute_length),
			 set.at, set.next, set.after };

	const perf_event_attr attr =
		breakpoint(Access::WRITE, reinterpret_cast<void *>(set.word), 4);

	if (STOPS_BEFORE_ACCESS)
		return { attr, set.at, set.next, set.after };
	return { attr, set.next, set.after, 0 };
}

/* Whether the kernel can execute programs with this instruction set. If not, the test says so. */
bool can_execute(const InstructionSet &set)
{
	const bool there = executes(set);

	if (!there)
		note("not tested: this kernel executes no %s programs", set.name);
	return there;
}

/*
 * Calls @check for a tracee that executes @place and, except for system calls, for 32-bit tracees.
 */
void in_tracees(const Place &place, const std::function<void(CheckedTracee &, const Spot &)> &check)
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

void check_continue(const Place &place, const Report &report)
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

void check_step(const Place &place, const Report &report)
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

/* ---- a handler */

std::atomic<uint64_t> handled, other_handled;

/* Without a maximum, an instruction that hits again and again would never end the test. */
void count(std::atomic<uint64_t> &signals, uint64_t at_most = 100 * HITS)
{
	if (++signals > at_most)
		fail("expected at most %lu signals, got more: one instruction hits forever",
		     at_most);
}

void count_signal(int, siginfo_t *, void *)
{
	count(handled);
}

void count_other(int, siginfo_t *, void *)
{
	count(other_handled);
}

/* The 32-bit program handles only one signal. */
void check_compat_handler(const Place &place, const Report &report)
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

void check_handler(const Place &place, const Report &report)
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

const bool added = [] {
	for (const Place &place : places) {
		for (const Report &report : reports) {
			const std::string name = std::string(place.name) + "." + report.name;
			const std::string event =
				std::string(place.title) + " with " + report.title;

			add_test({ "stepping.continue." + name, "C13",
				   "a tracer that continues from hits of " + event +
					   " sees every hit",
				   [&] { check_continue(place, report); } });
			add_test({ "stepping.step." + name, "C13",
				   "a tracer that steps from hits of " + event +
					   " advances one instruction per step",
				   [&] { check_step(place, report); } });
			add_test({ "stepping.handler." + name, "C13",
				   "a thread that handles hits of " + event +
					   " receives one signal per hit",
				   [&] { check_handler(place, report); } });
		}
	}
	return true;
}();

const Report &SETSIG_ALONE = reports[0], &SETSIG_PROGRAM = reports[1];

} // namespace

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
     "a tracer steps and continues across a rejected breakpoint")
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

TEST("stepping.detach", "C13", "a breakpoint keeps working after a tracer detaches at its hit")
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
		EXPECT_EQ(next.count(), i, "returns from the system call before it returns again");
		if (onwards == PTRACE_SINGLESTEP)
			tracee.resume_until(onwards, 0, SIGTRAP, nullptr);
	}
	tracee.resume(PTRACE_CONT);
	tracee.must_have_exited();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(next.count(), HITS, "returns from the system call");
}

TEST_OF("stepping.system_call_stop.writes", "C13",
	"writing registers at a system call stop hides no breakpoint at the next instruction",
	check_system_call_stop(true, PTRACE_CONT))

TEST_OF("stepping.system_call_stop.steps", "C13",
	"stepping from a system call stop hides no breakpoint at the next instruction",
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
	if (!HITS_BEHIND_EMULATED)
		unavailable("no hit after an emulated instruction, see Known issues");

	CountingEvent emulated(breakpoint(emulated_1)), next(breakpoint(emulated_2));

	for (uint64_t i = 0; i < HITS; i++)
		emulated_1();
	EXPECT_EQ(emulated.count(), HITS, "hits of the emulated instruction");
	EXPECT_EQ(next.count(), HITS, "hits of the next instruction");
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
     "a hit is reported once although another signal interrupts its handler")
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
	CountingEvent skipped(breakpoint(stepped_2));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *context) {
		count_signal(0, nullptr, nullptr);
		pc_of(*static_cast<ucontext_t *>(context)) = address(stepped_3);
	});

	call();
	EXPECT_EQ(hits.count(), HITS, "hits counted");
	EXPECT_EQ(handled, HITS, "signals");
	EXPECT_EQ(skipped.count(), 0, "executions of the skipped instruction");
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
		EXPECT_EQ(next.count(), i, "hits of the next breakpoint before it is executed");
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
static Random dice(1);

static void on_hit(int, siginfo_t *, void *)
{
	count(handled, 10 * ROUNDS);
	active++;
	switch (dice.below(16)) {
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

/* Starts the next timer at the end, so that a slow machine makes progress between two timers. */
static void on_timer(int, siginfo_t *, void *)
{
	constexpr itimerspec SOON = { {}, { 0, 1'700'000 } };

	other_handled++;
	in_timer++;
	stepped_1();
	store_1(&words.watched, 0);
	in_timer--;
	if (!over)
		timer_settime(timer, 0, &SOON, nullptr);
}

TEST("stepping.handler.all", "C13",
     "with signals, siglongjmp() and timers at once, each hit is reported once")
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
	EXPECT_EQ(hits.count(), handled, "hits counted, as many as signals");
	EXPECT_EQ(next.count(), handled - abandoned, "executions of the next instruction");
	EXPECT_EQ(call.count(), ROUNDS + other_handled, "hits of the breakpoint at the store");
	EXPECT_EQ(word.count(), ROUNDS + other_handled, "hits of the watchpoint");
	EXPECT_GT(jumps, 0, "jumps out of the handler");
	EXPECT_GT(other_handled, 0, "timer signals");
}
