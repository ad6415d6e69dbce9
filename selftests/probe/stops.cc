// SPDX-License-Identifier: GPL-2.0
#include "probe/stops.h"

#include <atomic>

#include "lib/event.h"
#include "lib/hit.h"
#include "lib/ptrace.h"
#include "lib/signals.h"

namespace {

/* Hits that a tracer is told of, until one is missing. A step has to leave the instruction. */
uint64_t told_of(bool step)
{
	TracedChild tracee([] {
		hit_times(HITS);
		return 0;
	});
	Event event(breakpoint(hit), tracee.pid());
	uint64_t times = 0;

	event.async(SETSIG, tracee.pid());
	event.enable();
	for (; times < HITS; times++) {
		if (!tracee.resume(PTRACE_CONT) || !tracee.has_stopped_by(SETSIG))
			break;
		if (!step)
			continue;

		const uint64_t at = tracee.pc();

		if (!tracee.resume(PTRACE_SINGLESTEP) || !tracee.has_stopped_by(SIGTRAP) ||
		    tracee.pc() == at)
			break;
	}
	return times;
}

uint64_t continues()
{
	return told_of(false);
}

uint64_t steps()
{
	return told_of(true);
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
