// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of one hit of a breakpoint for the task that hits it, and of one overflow of a hardware
 * counter, for different set-ups of the event.
 */
#include "bench/bench.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <array>
#include <optional>

#include "lib/hit.h"
#include "lib/pmu.h"
#include "lib/program.h"
#include "lib/ring.h"
#include "lib/sysctl.h"

/* Parts of a set-up. Without NO_EVENT or COUNTING there is a breakpoint that samples. */
enum : uint32_t {
	NO_EVENT = 1,
	COUNTING = 2,
	RING = 4, /* mapped, but no task sleeps in poll(2) */
	ASYNC = 8, /* O_ASYNC and F_SETSIG, to the thread that hits */
	TRAPS = 16, /* attr.sigtrap */
	REJECTS = 32, /* a program that rejects */
	BY_REGISTERS = 64, /* it compares 16 registers */
	ACCEPTS = 128, /* a program that accepts */
};

namespace {
struct EventSetup {
	const char *id, *title;
	uint32_t has = 0;
};
} // namespace

static constexpr EventSetup setups[] = {
	{ "bare", "bare call", NO_EVENT },
	{ "counting", "counting breakpoint (the floor)", COUNTING },
	{ "sampling", "sampling, no ring" },
	{ "sampling.ring", "sampling, ring", RING },
	{ "async", "O_ASYNC, no program", ASYNC },
	{ "sigtrap", "sigtrap, no program", TRAPS },
	{ "rejects", "program rejects", REJECTS },
	{ "rejects.ring", "program rejects, ring", REJECTS | RING },
	{ "rejects.async", "program rejects, O_ASYNC", REJECTS | ASYNC },
	{ "rejects.sigtrap", "program rejects, sigtrap", REJECTS | TRAPS },
	{ "rejects.registers", "program rejects by 16 registers, O_ASYNC",
	  REJECTS | BY_REGISTERS | ASYNC },
	{ "accepts", "program accepts", ACCEPTS },
	{ "accepts.ring", "program accepts, ring", ACCEPTS | RING },
	{ "accepts.async", "program accepts, O_ASYNC", ACCEPTS | ASYNC },
	{ "accepts.sigtrap", "program accepts, sigtrap", ACCEPTS | TRAPS },
};

static constexpr int WARM_UP = 100, ROUNDS = 1000;
static std::array<uint64_t, ROUNDS> durations;

/* Measures @setup with an event of @attr, which @hit hits once. */
template <typename Hit> static Row measure(const EventSetup &setup, perf_event_attr attr, Hit hit)
{
	const uint32_t has = setup.has;
	const bool accepted = !(has & REJECTS);
	Row row = { setup.id, setup.title, bool(has & (REJECTS | ACCEPTS)) };
	std::optional<Event> event;
	std::optional<Ring> ring;
	std::optional<Bench> program;

	measuring = setup.id;
	if (has & TRAPS && !has_sigtrap()) {
		row.why = "the kernel has no attr.sigtrap";
		return row;
	}
	if (has & (ASYNC | TRAPS) && attr.type == PERF_TYPE_BREAKPOINT &&
	    (accepted || !suppresses()) && hits_again()) {
		row.why = HITS_AGAIN;
		return row;
	}

	Signals signals({ SETSIG, SIGTRAP });

	if (!(has & NO_EVENT)) {
		if (has & COUNTING)
			attr.sample_period = attr.wakeup_events = attr.sample_type = 0;
		event.emplace(with_sigtrap(attr, has & TRAPS));
	}
	if (has & RING)
		ring.emplace(*event);
	if (has & ASYNC)
		event->async(SETSIG, gettid());
	if (row.program) {
		program.emplace(has & BY_REGISTERS ? "compares_registers" : "answers");
		program->globals()->verdict = bool(has & ACCEPTS);
		event->must_attach(*program);
	}
	if (event)
		event->enable();

	/* Count the runs of the program only during warm-up, because counting has a cost, too. */
	{
		Fd stats(program ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1);

		for (int i = 0; i < WARM_UP; i++)
			hit(i);
		if (program && stats.valid())
			expect("runs of the program", info_of_program(program->prog_fd()).run_cnt,
			       WARM_UP);
	}
	for (int i = 0; i < WARM_UP; i++)
		hit(i);
	for (auto &t : durations) {
		uint64_t before = now();

		hit(before);
		t = now() - before;
	}
	if (event) {
		event->disable();
		expect("hits counted", event->count(), 2 * WARM_UP + ROUNDS);
	}
	/* Whether rejected hits send signals depends on the kernel. */
	if (accepted) {
		const uint64_t all = 2 * WARM_UP + ROUNDS;

		expect("signals", Signals::count(SETSIG), has & ASYNC ? all : 0);
		expect("SIGTRAPs", Signals::count(SIGTRAP), has & TRAPS ? all : 0);
	}
	if (ring) {
		ring->drain();
		expect("samples", ring->samples(), accepted ? 2 * WARM_UP + ROUNDS : 0);
	}

	std::sort(durations.begin(), durations.end());
	row.figures = { { "min", durations.front() },
			{ "p50", durations[ROUNDS / 2] },
			{ "p99", durations[ROUNDS * 99 / 100] } };
	return row;
}

Table hits(int)
{
	Table table;

	for (const EventSetup &setup : setups)
		table.rows.push_back(measure(setup, breakpoint(hit), hit));
	return table;
}

/* The ticks include the call that raises the NMI; the row without an event shows its cost. */
Table overflows(int)
{
	Table table;

	if (std::ranges::count(usable_contexts(), NMI) == 0) {
		table.rows.push_back({ "nmi", "an overflow in an NMI" });
		table.rows.back().why = "the test PMU, which raises NMIs on demand, is not loaded";
		return table;
	}

	const Hits nmis(NMI);
	Sysctl rate("kernel/perf_event_max_sample_rate");

	rate.set(100'000'000); /* so that the counter is not throttled */
	for (const EventSetup &setup : setups) {
		if (setup.has & BY_REGISTERS)
			continue;
		table.rows.push_back(
			measure(setup, hardware(), [&nmis](uint64_t) { nmis.make(1); }));

		Row &row = table.rows.back();

		row.title = setup.has & NO_EVENT   ? "NMI, no counter"
			    : setup.has & COUNTING ? "counter that only counts (the floor)"
						   : setup.title;
	}
	return table;
}
