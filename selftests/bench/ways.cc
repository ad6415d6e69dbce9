// SPDX-License-Identifier: GPL-2.0
/* What one hit of a breakpoint costs the task that hits it, by what hangs on the event. */
#include "bench/bench.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <array>
#include <optional>

#include "lib/hit.h"
#include "lib/program.h"
#include "lib/ring.h"

enum class Breakpoint { NONE, COUNTS, SAMPLES };
enum class Says { NO_PROGRAM, REJECTS, REJECTS_BY_REGISTERS, ACCEPTS };

struct Way {
	const char *id, *title;
	Breakpoint breakpoint = Breakpoint::SAMPLES;
	Says says = Says::NO_PROGRAM;
	bool ring = false; /* mapped; nobody sleeps in poll(2) */
	bool async = false; /* O_ASYNC and F_SETSIG, to the thread that hits */
	bool sigtrap = false; /* attr.sigtrap: to itself */
};

static constexpr Way ways[] = {
	{ .id = "bare", .title = "bare call", .breakpoint = Breakpoint::NONE },
	{ .id = "counting",
	  .title = "counting breakpoint (the floor)",
	  .breakpoint = Breakpoint::COUNTS },
	{ .id = "sampling", .title = "sampling, no ring" },
	{ .id = "sampling.ring", .title = "sampling, ring", .ring = true },
	{ .id = "async", .title = "O_ASYNC, no program", .async = true },
	{ .id = "sigtrap", .title = "sigtrap, no program", .sigtrap = true },
	{ .id = "rejects", .title = "program rejects", .says = Says::REJECTS },
	{ .id = "rejects.ring",
	  .title = "program rejects, ring",
	  .says = Says::REJECTS,
	  .ring = true },
	{ .id = "rejects.async",
	  .title = "program rejects, O_ASYNC",
	  .says = Says::REJECTS,
	  .async = true },
	{ .id = "rejects.sigtrap",
	  .title = "program rejects, sigtrap",
	  .says = Says::REJECTS,
	  .sigtrap = true },
	{ .id = "rejects.registers",
	  .title = "program rejects by 16 registers, O_ASYNC",
	  .says = Says::REJECTS_BY_REGISTERS,
	  .async = true },
	{ .id = "accepts", .title = "program accepts", .says = Says::ACCEPTS },
	{ .id = "accepts.ring",
	  .title = "program accepts, ring",
	  .says = Says::ACCEPTS,
	  .ring = true },
	{ .id = "accepts.async",
	  .title = "program accepts, O_ASYNC",
	  .says = Says::ACCEPTS,
	  .async = true },
	{ .id = "accepts.sigtrap",
	  .title = "program accepts, sigtrap",
	  .says = Says::ACCEPTS,
	  .sigtrap = true },
};

static constexpr int WARM_UP = 100, ROUNDS = 1000;
static std::array<uint64_t, ROUNDS> taken;

static Row measure(const Way &way)
{
	Row row = { way.id, way.title, way.says != Says::NO_PROGRAM };
	const bool counts = way.breakpoint == Breakpoint::COUNTS;
	const bool accepted = way.says == Says::NO_PROGRAM || way.says == Says::ACCEPTS;
	std::optional<Event> event;
	std::optional<Ring> ring;
	std::optional<Bench> program;
	Signals signals({ SETSIG, SIGTRAP });

	measuring = way.id;
	if (way.sigtrap && !has_sigtrap()) {
		row.why = "the kernel has no attr.sigtrap";
		return row;
	}
	if (way.breakpoint != Breakpoint::NONE) {
		perf_event_attr attr = breakpoint(hit);

		if (counts)
			attr.sample_period = attr.wakeup_events = attr.sample_type = 0;
		event.emplace(with_sigtrap(attr, way.sigtrap));
	}
	if (way.ring)
		ring.emplace(*event);
	if (way.async)
		event->async(SETSIG, gettid());
	if (way.says != Says::NO_PROGRAM) {
		program.emplace(way.says == Says::REJECTS_BY_REGISTERS ? "compares_registers"
								       : "answers");
		program->globals()->verdict = way.says == Says::ACCEPTS;
		event->must_attach(*program);
	}
	if (event)
		event->enable();

	/* The program's runs are counted in the warm-up alone, since that has a price of its own. */
	{
		Fd stats(program ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1);

		hit_times(WARM_UP);
		if (program && stats.valid())
			expect("runs of the program", info_of_program(program->prog_fd()).run_cnt,
			       WARM_UP);
	}
	hit_times(WARM_UP);
	for (auto &t : taken) {
		uint64_t before = now();

		hit(before);
		t = now() - before;
	}
	if (event) {
		event->disable();
		expect("hits counted", event->count(), 2 * WARM_UP + ROUNDS);
	}
	/* Of a rejected hit they are what stock and patched differ in. */
	if (accepted) {
		const uint64_t all = 2 * WARM_UP + ROUNDS;

		expect("signals", Signals::count(SETSIG), way.async ? all : 0);
		expect("SIGTRAPs", Signals::count(SIGTRAP), way.sigtrap ? all : 0);
	}
	if (ring) {
		ring->drain();
		expect("samples", ring->samples(), accepted ? 2 * WARM_UP + ROUNDS : 0);
	}

	std::sort(taken.begin(), taken.end());
	row.figures = { { "min", taken.front() },
			{ "p50", taken[ROUNDS / 2] },
			{ "p99", taken[ROUNDS * 99 / 100] } };
	return row;
}

Table hits(int)
{
	Table table;

	for (const Way &way : ways)
		table.rows.push_back(measure(way));
	return table;
}
