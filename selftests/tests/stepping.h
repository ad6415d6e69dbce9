/* SPDX-License-Identifier: GPL-2.0 */
/* Places that hit, events that report the hits, and tracees that must stop there: C13. */
#pragma once

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "lib/arch.h"
#include "lib/compat.h"
#include "lib/ptrace.h"
#include "tests/common.h"

extern "C" {
void stepped_1();
void stepped_2();
void stepped_3();
void store_0(volatile uint32_t *to, uint32_t value); /* continues in store_1() */
void store_1(volatile uint32_t *to, uint32_t value);
void store_2();
void store_3();
long call_0(long number, long, long, long);
void call_1();
void call_2();
}

namespace stepping {

template <typename Function> uint64_t address(Function *function)
{
	return reinterpret_cast<uintptr_t>(function);
}

struct Words {
	uint32_t watched, next;
};
inline volatile Words words;

/* Code that hits, its event, the pc at the hit, and the next two instructions. */
struct Place {
	const char *name, *title;
	int (*run)();
	perf_event_attr (*attr)();
	void (*at)(), (*next)(), (*after)();
};

inline int call()
{
	for (uint64_t i = 0; i < HITS; i++)
		stepped_1();
	return 0;
}

inline int store()
{
	for (uint32_t i = 0; i < HITS; i++) {
		store_1(&words.watched, i);
		if (words.watched != i)
			return 1;
		words.next = i; /* for QEMU's TCG, see breakpoint.cc */
	}
	return 0;
}

inline int system_call()
{
	for (uint64_t i = 0; i < HITS; i++)
		if (call_0(SYS_getppid, 0, 0, 0) != getppid())
			return 1;
	return 0;
}

inline perf_event_attr at_call()
{
	return breakpoint(stepped_1);
}

inline perf_event_attr at_store()
{
	return breakpoint(store_1);
}

inline perf_event_attr at_word()
{
	return breakpoint(Access::WRITE, &words.watched, sizeof(words.watched));
}

inline perf_event_attr at_system_call()
{
	return breakpoint(call_1);
}

inline void (*const store_at)() = reinterpret_cast<void (*)()>(STOPS_BEFORE_ACCESS
								       ? address(store_1)
								       : address(store_2));

inline const Place places[] = {
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
};
inline const Report reports[] = {
	{ "setsig", "F_SETSIG", false, false },
	{ "setsig.program", "F_SETSIG and an accepting program", false, true },
	{ "sigtrap", "SIGTRAP", true, false },
	{ "sigtrap.program", "SIGTRAP and an accepting program", true, true },
};

/*
 * Adds a test @name.PLACE.REPORT for each place and each report. Its description is @before, the
 * place and the report, and @after.
 */
inline void add_tests(const std::string &name, const std::string &before, const std::string &after,
		      void (*check)(const Place &, const Report &),
		      CallSite at = CallSite::of_call())
{
	for (const Place &place : places)
		for (const Report &report : reports)
			add_test({ name + "." + place.name + "." + report.name, "C13",
				   before + place.title + " with " + report.title + after,
				   [&place, &report, check] { check(place, report); } },
				 at);
}

inline const Report &SETSIG_ALONE = reports[0], &SETSIG_PROGRAM = reports[1],
		    &SIGTRAP_ALONE = reports[2];

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

/* A tracee that fails the test if it does not stop where it must. */
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

	/* Resumes the tracee with @sig. It must stop by @stops_by, and at @at unless that is 0. */
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

inline Spot spot_of(const Place &place)
{
	return { place.attr(), address(place.at), address(place.next), address(place.after) };
}

inline Spot spot_of(const InstructionSet &set, const Place &place)
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

/* Whether the kernel can execute programs with this instruction set. If not, prints a note. */
inline bool can_execute(const InstructionSet &set)
{
	const bool there = executes(set);

	if (!there)
		note("not tested: this kernel executes no %s programs", set.name);
	return there;
}

/* The signals that count_signal() and count_other() have handled. */
inline std::atomic<uint64_t> handled, other_handled;

/* If an instruction hits forever, the maximum ends the test. */
inline void count(std::atomic<uint64_t> &signals, uint64_t at_most = 100 * HITS)
{
	if (++signals > at_most)
		fail("expected at most %lu signals, got more: one instruction hits forever",
		     at_most);
}

inline void count_other(int, siginfo_t *, void *)
{
	count(other_handled);
}

} // namespace stepping
