/* SPDX-License-Identifier: GPL-2.0 */
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "lib/hit.h"
#include "lib/ring.h"
#include "lib/signals.h"
#include "stress/books.h"
#include "stress/decider.h"
#include "stress/parts.h"

/* The watched word, on a separate page: QEMU is slow on every access to a watched page. */
extern volatile uint64_t &word;

/* Stores @value, which is still in the first argument register when the watchpoint has hit. */
void store(uint64_t value, volatile uint64_t *to);

constexpr uint64_t BATCH = 1000; /* hits, which all fit into a ring and into the signal queue */

/* Samples consist of the header and one word: the value, which identifies the hit. */
perf_event_attr with_value_in_sample(perf_event_attr attr);

/* An event with its program and its effects, and the counts of its hits. */
class Scene {
public:
	Scene(const Part &part, perf_event_attr attr);
	Scene(const Scene &) = delete;

	bool by_link() const { return part.by_link || unpredictable & DETACHES; }
	bool accept(uint64_t value) const
	{
		return accepts(part.seed, value, first.globals()->mask);
	}
	void accept_all_from_now_on() { first.globals()->mask = 0; }

	/* Counts a hit, which another task may make. */
	void count_hit(uint64_t value)
	{
		tried++;
		if (accept(value)) {
			accepted++;
			sum += value;
		}
	}
	/* Hits @times times. If possible, compares the signals before the next hit. */
	template <typename Hit> void batch(Hit hit, uint64_t times)
	{
		const bool block = part.blocks_signals && batches++ % 2;
		const bool at_once = !block && part.effects & (SIGNALS | TRAPS) &&
				     !(unpredictable & (SILENCES | MOVES_SIGNALS)) &&
				     !(unpredictable & DETACHES && kernel);

		if (block)
			sigprocmask(SIG_BLOCK, &blocked, nullptr);
		for (uint64_t i = 0; i < times; i++) {
			count_hit(++value);
			if (kernel)
				__atomic_store_n(&first.globals()->value, value, __ATOMIC_RELAXED);
			hit(value);
			if (at_once)
				compare_signals();
		}
		if (block)
			sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
		finish_batch(block);
	}

	/* The number of accepted hits so far. */
	uint64_t due() const
	{
		return unpredictable & MISSES_HITS || kernel ? first.accepted() : accepted;
	}
	uint64_t caught() const { return Signals::count(SETSIG); }

	/* Right after a hit: compares the signals so far, unless they may arrive later. */
	void compare_signals();
	/* Waits for all effects of a batch, so that no queue overflows in the next one. */
	void finish_batch(bool blocked);
	/* Waits for signals that may arrive after the hit, at least one if they are merged. */
	void wait_for_signals();
	void drain();

	/* Compares everything, after the meddler has ended. A full ring requires one more @hit. */
	void close(const std::function<void(uint64_t)> &hit = {});

	const Part part;
	const uint32_t unpredictable;
	const bool kernel;
	const perf_event_attr attr;
	Signals signals;
	Event event;
	Decider first, second; /* two, because a meddler may replace one by the other */
	std::optional<Ring> ring;
	Fd link;
	uint64_t value = 0, tried = 0, accepted = 0, sum = 0;
	std::atomic<uint64_t> samples = 0;
	pid_t hitter = gettid();

private:
	void check(uint32_t effect, uint32_t unless, const char *what, uint64_t due,
		   uint64_t actual);

	sigset_t blocked;
	uint64_t batches = 0, samples_sum = 0, traps_due = 0, due_before = 0, polled = 0;
	uint64_t last_due = 0, last_caught = 0;
};

/* Pauses for a random time, so that a race is tried at each of its steps. */
void pause_a_little(Random &random);

/* A thread that repeats the part's meddling, if there is one, until it is destroyed. */
class Meddler {
public:
	explicit Meddler(Scene &scene);
	~Meddler();

private:
	std::atomic<bool> stop_ = false;
	std::thread thread_;
};
