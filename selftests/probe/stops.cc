// SPDX-License-Identifier: GPL-2.0
#include "probe/stops.h"

#include <atomic>

#include "lib/event.h"
#include "lib/hit.h"
#include "lib/ptrace.h"
#include "lib/signals.h"

namespace {

/* The hits in a row that stop the tracee. With @step, a single step after each must advance. */
uint64_t hits_seen_by_tracer(bool step)
{
	Tracee tracee([] {
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
	return hits_seen_by_tracer(false);
}

uint64_t steps()
{
	return hits_seen_by_tracer(true);
}

std::atomic<uint64_t> handled;
Event *handled_event;

uint64_t handles()
{
	Event event(breakpoint(hit));
	const Handler handler(SETSIG, [](int, siginfo_t *, void *) {
		if (++handled > 100 * HITS)
			handled_event->disable();
	});

	handled_event = &event;
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
