// SPDX-License-Identifier: GPL-2.0
#include "gdb/support.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "lib/child.h"
#include "lib/effects.h"
#include "lib/event.h"
#include "lib/fail.h"
#include "lib/filter.h"
#include "lib/rights.h"

/* The message of the measuring child to its parent, in shared memory. */
static char *reason;
static constexpr size_t REASON_SIZE = 256;

void setup_failed(const char *what, int err)
{
	if (!reason) {
		fprintf(stderr, "perf_bpf_gdb: %s: %s\n", what, errno_name(err).c_str());
		_exit(1);
	}
	snprintf(reason, REASON_SIZE, "%s: %s", what, errno_name(err).c_str());
	_exit(1);
}

void unavailable(const char *why)
{
	if (reason)
		snprintf(reason, REASON_SIZE, "%s", why);
	_exit(1);
}

/* Runs @body in a child, which an unhandled SIGTRAP may kill, and returns what it reports. */
template <typename Body> static std::string in_child(Body body)
{
	reason = static_cast<char *>(shared_with_children(REASON_SIZE));

	Child child([&] {
		snprintf(reason, REASON_SIZE, "%s", body());
		return 0;
	});
	const int status = child.wait();
	std::string said = reason;

	reason = nullptr;
	return said.empty() && status ? "the measuring process was killed by a signal" : said;
}

std::string missing_support()
{
	if (const std::string missing = missing_rights(); !missing.empty())
		return "needs " + missing +
		       (missing.find("CAP_BPF") == missing.npos &&
					missing.find("CAP_PERFMON") == missing.npos
				? ""
				: "; run setcap cap_bpf,cap_perfmon+ep on perf_bpf_gdb as root");
	if (!has_sigtrap())
		return "the kernel has no attr.sigtrap, which came with Linux 5.13";
	return in_child([] {
		Setup setup;

		setup.sigtrap = true;

		if (const char *why = why_not_hit(); *why)
			return why;
		return observe(setup, rejects).sigtrap
			       ? "the kernel does not suppress SIGTRAP for a hit that a program "
				 "rejects, as Linux 6.10 and kernels with the series do"
			       : "";
	});
}

bool may_lose_hits()
{
	static constexpr char SERIES[] = "the series is applied";

	/*
	 * No file or flag says whether the series is applied, nor does the version: distributions
	 * backport what Linux 6.10 does. One of the changes that the series makes in every kernel
	 * can be seen without a race: the hit after PERF_EVENT_IOC_PERIOD is not two overflows. A
	 * kernel with only the feature of a series, which loses no SIGTRAP, is warned of as well.
	 */
	return in_child([] {
		       Filter filter;
		       Event event(breakpoint(hit));

		       event.enable(filter);
		       hit(0);
		       event.set_period(2);
		       hit(0);
		       return filter.runs() == 1 ? SERIES : "";
	       }) != SERIES;
}
