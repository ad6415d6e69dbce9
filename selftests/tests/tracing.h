/* SPDX-License-Identifier: GPL-2.0 */
/* Events of tracepoints and probes. */
#pragma once

#include <fcntl.h>

#include <cstdlib>

#include "lib/event.h"
#include "lib/fail.h"
#include "lib/fd.h"

/* The number in a sysfs file, or -1. */
inline long number_in(const char *path)
{
	char text[32] = {};
	Fd fd(open(path, O_RDONLY | O_CLOEXEC));

	if (!fd.valid() || read(fd.get(), text, sizeof(text) - 1) <= 0)
		return -1;
	return strtol(text, nullptr, 10);
}

inline perf_event_attr tracing_event(uint32_t type)
{
	perf_event_attr attr = {};

	attr.type = type;
	attr.size = sizeof(attr);
	attr.sample_period = 1;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.disabled = 1;
	return attr;
}

inline perf_event_attr kprobe_on(const char *symbol)
{
	const long type = number_in("/sys/bus/event_source/devices/kprobe/type");

	if (type < 0)
		unavailable("no kprobe events (CONFIG_KPROBE_EVENTS)");

	perf_event_attr attr = tracing_event(type);

	attr.kprobe_func = reinterpret_cast<uintptr_t>(symbol);
	return attr;
}
