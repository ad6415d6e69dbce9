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

/* That the watchpoints watch; alone on its page, as QEMU looks closely at all of that. */
extern volatile uint64_t &word;

/* The value is still in the first argument register when the watchpoint has hit. */
void store(uint64_t value, volatile uint64_t *to);

constexpr uint64_t BATCH = 1000; /* accepted ones fit into a ring, and into the queue of signals */

/* Whose samples have one word beside the header, which says what hit it was. */
perf_event_attr saying_value(perf_event_attr attr);

/* An event with its program and all that hangs on it, and the books of its hits. */
class Scene {
public:
	Scene(const Part &part, perf_event_attr attr);
	Scene(const Scene &) = delete;

	bool by_link() const { return part.by_link || takes & DETACHES; }
	bool accept(uint64_t value) const
	{
		return accepts(part.seed, value, first.globals()->mask);
	}
	void accept_all_from_now_on() { first.globals()->mask = 0; }

	/* A hit that somebody else will do, or has done. */
	void book(uint64_t value)
	{
		tried++;
		if (accept(value)) {
			accepted++;
			sum += value;
		}
	}
	/* Hits @times with all that follows by rights, each time before the next instruction. */
	template <typename Hit> void batch(Hit hit, uint64_t times)
	{
		const bool block = part.blocks && batches++ % 2;
		const bool at_once = !block && part.effects & (SIGNALS | TRAPS) &&
				     !(takes & (SILENCES | MOVES_SIGNALS)) &&
				     !(takes & DETACHES && kernel);

		if (block)
			sigprocmask(SIG_BLOCK, &blocked, nullptr);
		for (uint64_t i = 0; i < times; i++) {
			book(++value);
			if (kernel)
				__atomic_store_n(&first.globals()->value, value, __ATOMIC_RELAXED);
			hit(value);
			if (at_once)
				compare_signals();
		}
		if (block)
			sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
		settle(block);
	}

	/* How many were accepted, as far as it can be told while they hit. */
	uint64_t due() const { return takes & MISSES_HITS || kernel ? first.accepted() : accepted; }
	uint64_t caught() const { return Signals::count(SETSIG); }

	/* What of all this is on the way arrives before the next batch, so no queue overflows. */
	void settle(bool blocked);
	/* Those that may come later than the hit. Where several are one, one must come for all. */
	void wait_for_signals();
	void drain();

	/* Compares; who meddles with it must have ended. Where a ring is full it takes one more hit. */
	void close(const std::function<void(uint64_t)> &hit = {});

	const Part part;
	const uint32_t takes;
	const bool kernel;
	const perf_event_attr attr;
	Signals signals;
	Event event;
	Decider first, second; /* two, for the meddler who changes them */
	std::optional<Ring> ring;
	Fd link;
	uint64_t value = 0, tried = 0, accepted = 0, sum = 0;
	std::atomic<uint64_t> samples = 0;
	pid_t hitter = gettid();

private:
	void compare_signals();
	void check(uint32_t effect, uint32_t unless, const char *what, uint64_t due, uint64_t came);

	sigset_t blocked;
	uint64_t batches = 0, samples_sum = 0, traps_due = 0, due_before = 0, polled = 0;
	uint64_t due_settled = 0, caught_settled = 0;
};

/* Pauses that differ, so that what is raced is met at each of its steps. */
void pause_a_little(Random &random);

/* Does what the part says to the event, in a thread of its own, until it is destroyed. */
class Meddler {
public:
	explicit Meddler(Scene &scene);
	~Meddler();

private:
	std::atomic<bool> stop_ = false;
	std::thread thread_;
};
