/* SPDX-License-Identifier: GPL-2.0 */
/* A process that is traced to one of its many arrivals at two places, for those uses that seek. */
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lib/child.h"
#include "uses/uses.h"

/* What it does: laps of LAP arrivals, each at one of two places; every lap is like the first. */
constexpr uint64_t LAP = 80;
using Place = void(uint64_t, uint64_t, uint64_t, uint64_t);
Place here, there;

/* What the tracer knows of a stop: the program counter and the first four arguments. */
struct Registers {
	uint64_t pc;
	std::array<uint64_t, 4> arguments;

	bool operator==(const Registers &) const = default;
	/* At the same place, and equal in the arguments that matter. */
	bool matches(const Registers &other, uint32_t matters) const;
};

class Tracee {
public:
	/* The program "seek" of uses.bpf.c, and its globals. */
	Tracee(int prog_fd, volatile uses::uses__bss *globals);

	/* Runs to the @nth arrival that matches; returns how often the tracer was woken for it. */
	uint64_t seek(const Registers &wanted, uint32_t matters, uint64_t nth, uint64_t expected);
	/* What single-stepping through the first lap tells: where each arrival is, with what registers. */
	std::vector<Registers> step_through_a_lap();
	Registers registers() const;
	/* Arrivals before this one. */
	uint64_t arrived() const;
	/* Lets it run to its end, which no stop may precede. Returns the hits counted. */
	uint64_t end();

private:
	void resume(int request);
	void step();
	pid_t stopped_by(int sig);

	volatile uses::uses__bss *globals_;
	Child child_;
	perf_event_attr attr_;
	Event event_;
};
