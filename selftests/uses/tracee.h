/* SPDX-License-Identifier: GPL-2.0 */
/* A tracee that arrives at two places many times, for the examples that seek one arrival. */
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lib/ptrace.h"
#include "uses/uses.h"

/* It runs laps of LAP arrivals, each at one of the two places. All laps are the same. */
constexpr uint64_t LAP = 80;
using Place = void(uint64_t, uint64_t, uint64_t, uint64_t);
Place here, there;

/* The registers at a stop: the program counter and the first four arguments. */
struct Registers {
	uint64_t pc;
	std::array<uint64_t, 4> arguments;

	bool operator==(const Registers &) const = default;
	/* Whether the place and the arguments whose bits are set in @matters are the same. */
	bool matches(const Registers &other, uint32_t matters) const;
};

class SeekTracee : public Tracee {
public:
	/* @prog_fd is the program "seek" of uses.bpf.c, and @globals are its globals. */
	SeekTracee(int prog_fd, volatile uses::uses__bss *globals);

	/*
	 * Runs to the @nth arrival that matches, before which there are @expected arrivals in all.
	 * Returns how often the tracer was woken.
	 */
	uint64_t seek(const Registers &wanted, uint32_t matters, uint64_t nth, uint64_t expected);
	/* Single-steps through the first lap, and returns the registers at each arrival. */
	std::vector<Registers> step_through_a_lap();
	Registers registers() const;
	/* The number of arrivals before this one. */
	uint64_t arrived() const;
	/* Lets it exit without another stop, and returns the number of hits counted. */
	uint64_t end();

private:
	void step();
	pid_t stopped_by(int sig);

	volatile uses::uses__bss *globals_;
	perf_event_attr attr_;
	Event event_;
};
