/* SPDX-License-Identifier: GPL-2.0 */
/* The PMU for guests, module/perf_bpf_pmu.c, whose events overflow on demand. */
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/event.h"
#include "lib/fd.h"
#include "lib/sysctl.h"

/* The context in which the counters are hit. Each has a file in debugfs. */
enum Context { NMI, IRQ, TASK };

inline constexpr const char *contexts[] = { "nmi", "irq", "task" };

/* The contexts that this machine has: NMI on x86 only; none without the PMU. */
std::vector<Context> usable_contexts();

/* attr.type of the PMU, or 0 if it is not loaded or its debugfs files are not writable. */
uint32_t pmu_type();

/*
 * A disabled counter that overflows on every hit, with @config as attr.config. The hits are in
 * kernel mode. This and what follows call unavailable() without the PMU.
 */
perf_event_attr hardware(uint64_t config = 0);

/*
 * Writes once to a word under a watchpoint that is installed as kgdb does it, and returns the
 * number of hits. x86 only.
 */
uint64_t kgdb_hits();

/*
 * A PMU that can be unregistered while it has events, as when root unbinds a driver. It requires
 * Linux 6.15. Its events count nothing.
 */
class RemovablePmu {
public:
	RemovablePmu();
	~RemovablePmu();
	RemovablePmu(const RemovablePmu &) = delete;

	/* Registers the PMU. */
	void register_pmu();
	/* Unregisters the PMU, and waits until the programs of its events are detached. */
	void unregister_pmu();
	/* A counter of the PMU while it is registered. */
	perf_event_attr counter() const;

private:
	void write_command(const char *what);

	Fd file_;
	bool registered_ = false;
};

/*
 * Hits all counters of a CPU in one of the contexts. Also raises the limit of samples per second to
 * the kernel's default: the kernel lowers it when the interrupts of another PMU take long, as in a
 * guest on a busy machine.
 */
class Hits {
public:
	explicit Hits(Context context);

	/* Makes @hits hits on @cpu, or on the CPU of the caller. */
	void make(uint64_t hits, int cpu = -1) const;

	/* Makes one hit, in an NMI at the next call of the kernel function @function. */
	void make_in(const char *function) const;

private:
	Fd file_;
	std::unique_ptr<EnoughSampling> rate_;
};
