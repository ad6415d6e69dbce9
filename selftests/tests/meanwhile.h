/* SPDX-License-Identifier: GPL-2.0 */
/* A thread on another CPU, with which hits race. */
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "lib/cpus.h"
#include "lib/event.h"

/* A thread on @cpu that calls @round(number) repeatedly until it is destroyed. */
class Meanwhile {
public:
	template <typename Round>
	Meanwhile(int cpu, Round round)
		: thread_([this, cpu, round] {
			run_on(cpu);
			while (!stop_.load(std::memory_order_relaxed)) {
				round(rounds_.load(std::memory_order_relaxed));
				rounds_.fetch_add(1, std::memory_order_relaxed);
			}
		})
	{
		while (!rounds())
			sched_yield();
	}
	~Meanwhile()
	{
		stop_ = true;
		thread_.join();
	}
	uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

private:
	std::atomic<bool> stop_ = false;
	std::atomic<uint64_t> rounds_ = 0;
	std::thread thread_;
};

/* Frequent timer interrupts on @cpu, which slow down the interrupted code. */
class Interrupts {
public:
	explicit Interrupts(int cpu)
		: clock_(software(PERF_COUNT_SW_CPU_CLOCK, 20'000), -1, cpu)
	{
		clock_.enable();
	}

private:
	Event clock_;
};

/* A CPU for the hits, and one for what they race with. */
struct Cpus {
	int here, there;
};

inline Cpus two_cpus()
{
	std::vector<int> cpus = usable_cpus();

	if (cpus.size() < 2)
		skip("the test needs two CPUs");
	run_on(cpus[0]);
	return { cpus[0], cpus[1] };
}
