// SPDX-License-Identifier: GPL-2.0
#include "probe/stops.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>

#include "lib/child.h"
#include "lib/event.h"
#include "lib/fail.h"
#include "lib/hit.h"
#include "lib/ptrace.h"
#include "lib/signals.h"

namespace {

/* A child that waits to be let go, and then hits. */
class Tracee {
public:
	Tracee()
		: child_([] {
			stop_for_tracer();
			hit_times(HITS);
			return 0;
		})
	{
		child_.wait();
	}

	pid_t pid() const { return child_.pid(); }

	/* Whether this signal stops it next. */
	bool stops_by(int sig, __ptrace_request how)
	{
		if (ptrace(how, child_.pid(), nullptr, nullptr))
			setup_failed("ptrace", errno);

		const int status = child_.wait();

		return WIFSTOPPED(status) && WSTOPSIG(status) == sig;
	}

private:
	Child child_;
};

uint64_t continues()
{
	Tracee tracee;
	Event event(breakpoint(hit), tracee.pid());
	uint64_t times = 0;

	event.async(SETSIG, tracee.pid());
	event.enable();
	while (times < HITS && tracee.stops_by(SETSIG, PTRACE_CONT))
		times++;
	return times;
}

/* A step is one only if it leaves the instruction. */
uint64_t steps()
{
	Tracee tracee;
	Event event(breakpoint(hit), tracee.pid());
	uint64_t times = 0;

	event.async(SETSIG, tracee.pid());
	event.enable();
	while (times < HITS && tracee.stops_by(SETSIG, PTRACE_CONT)) {
		const uint64_t at = where_is(tracee.pid());

		if (!tracee.stops_by(SIGTRAP, PTRACE_SINGLESTEP) || where_is(tracee.pid()) == at)
			break;
		times++;
	}
	return times;
}

std::atomic<uint64_t> handled;
Event *told;

uint64_t handles()
{
	Event event(breakpoint(hit));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *) {
		if (++handled > 100 * HITS)
			told->disable();
	});

	told = &event;
	event.async(SETSIG, gettid());
	event.enable();
	hit_times(HITS);
	return handled;
}

} // namespace

const Stop stops[STOPS] = {
	{ "continue", "PTRACE_CONT from a hit", continues, "loses the next", nullptr },
	{ "step", "PTRACE_SINGLESTEP from a hit", steps, "does not stop", nullptr },
	{ "handler", "return from the handler of a hit", handles, "hits too seldom", "hits again" },
};
