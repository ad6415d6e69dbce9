/* SPDX-License-Identifier: GPL-2.0 */
/* The PMU for guests, module/perf_bpf_pmu.c: its events count where and when one likes. */
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/event.h"
#include "lib/fd.h"
#include "lib/sysctl.h"

/* Where the hits of its counters come from: its files in debugfs. */
enum Context { NMI, IRQ, TASK };

inline constexpr const char *contexts[] = { "nmi", "irq", "task" };

/* Those that it has here, or none: an NMI on x86 alone. */
std::vector<Context> usable_contexts();

/* Its attr.type, or 0 where there is none, or nobody may make it hit. */
uint32_t pmu_type();

/*
 * A disabled counter that overflows at every hit, with its attr.config. The kernel makes the hits,
 * in kernel mode. unavailable() without the PMU, as all that follows.
 */
perf_event_attr hardware(uint64_t config = 0);

/*
 * A PMU that goes while it has events, as where root unbinds a driver; from Linux 6.15 on, or
 * unavailable(). It counts nothing.
 */
class Visitor {
public:
	Visitor();
	~Visitor();
	Visitor(const Visitor &) = delete;

	void comes();
	/* Takes its events' programs off; until that is done. */
	void goes();
	/* A counter of it, while it is here. */
	perf_event_attr counter() const;

private:
	void say(const char *what);

	Fd file_;
	bool here_ = false;
};

/*
 * All that happens on a CPU counts, in one of the contexts; open once, written to often. What the
 * kernel lets overflow between two ticks is its default at least: it lowers that where the interrupts
 * of another PMU take long, as in a guest on a busy machine.
 */
class Hits {
public:
	explicit Hits(Context context);

	/* On the CPU of the caller, or another one. */
	void make(uint64_t hits, int cpu = -1) const;

private:
	Fd file_;
	std::unique_ptr<EnoughSampling> rate_;
};
