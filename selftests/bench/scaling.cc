// SPDX-License-Identifier: GPL-2.0
/* How the cost of a rejected hit grows with breakpoints, threads, CPUs, conditions and tasks. */
#include <pthread.h>

#include <deque>
#include <thread>

#include "bench/bench.h"
#include "lib/child.h"
#include "lib/cpus.h"
#include "lib/event.h"
#include "lib/fail.h"
#include "lib/signals.h"

static constexpr uint64_t ARRIVALS = Run::SLOTS;

/* Calls @body, which arrives, with a breakpoint whose @program rejects each arrival. */
template <typename Body> static void rejected(const char *program, perf_event_attr attr, Body body)
{
	if (!suppresses())
		unavailable("the kernel does not suppress");

	Signals signals({ SETSIG });
	Bench bench(program);
	Event event(attr);

	/* No argument and no register has this value. */
	bench.globals()->wanted = ~0ull;
	bench.globals()->registers[0] = ~0ull;
	event.async(SETSIG, gettid());
	event.enable(bench);
	body();
	event.disable();
	expect("signals", Signals::count(SETSIG), 0);
	expect("hits counted", event.count(), ARRIVALS);
}

static void breakpoints(int n)
{
	static volatile uint64_t never_executed[4];

	rejected("matches", breakpoint(arrive), [=] {
		std::deque<Event> others;

		for (int i = 1; i < n; i++) {
			others.emplace_back(breakpoint(Access::EXECUTE, &never_executed[i],
						       sizeof(never_executed[i])));
			others.back().enable();
		}
		loop();
	});
}

static void registers(int n)
{
	const std::string name = n == 16 ? "compares_registers" : "compares_" + std::to_string(n);

	rejected(name.c_str(), breakpoint(arrive), [] { loop(); });
}

/* @n concurrent threads share the arrivals. With @pin, each thread runs on a different CPU. */
static void in_threads(int n, bool pin)
{
	rejected("matches", inherited(breakpoint(arrive)), [=] {
		const uint64_t part = ARRIVALS / n;
		pthread_barrier_t all_there;
		std::deque<std::thread> threads;

		pthread_barrier_init(&all_there, nullptr, n);
		for (int i = 0; i < n; i++)
			threads.emplace_back([=, &all_there] {
				if (pin)
					run_on(cpus[i]);
				pthread_barrier_wait(&all_there);
				loop(i * part, i == n - 1 ? ARRIVALS : (i + 1) * part);
			});
		for (std::thread &thread : threads)
			thread.join();
	});
}

static void threads(int n)
{
	in_threads(n, false);
}

static void on_cpus(int n)
{
	if (cpus.size() < static_cast<size_t>(n))
		unavailable("this machine has fewer CPUs");
	in_threads(n, true);
}

static void tasks(int n)
{
	rejected("matches", inherited(breakpoint(arrive)), [=] {
		std::deque<Child> others;

		for (int i = 0; i < n; i++)
			others.emplace_back(pause);
		loop();
	});
}

/* The other rows are compared with the first value of n. */
static const struct {
	const char *id, *title;
	void (*measure)(int n);
	std::vector<int> n;
} dimensions[] = {
	{ "breakpoints", "breakpoints in the task", breakpoints, { 1, 2, 3, 4 } },
	{ "registers", "registers compared", registers, { 1, 2, 4, 8, 16 } },
	{ "threads", "threads on one CPU, with inherit", threads, { 1, 2, 4, 8, 16, 32, 64 } },
	{ "cpus", "CPUs at once, with inherit", on_cpus, { 1, 2, 3, 4 } },
	{ "tasks", "other tasks that have inherited", tasks, { 1, 10, 100, 1000 } },
};

Table scaling(int rounds)
{
	Table table;

	for (auto &d : dimensions) {
		std::vector<std::vector<double>> ticks(d.n.size());
		std::vector<std::string> why(d.n.size());

		measuring = d.id;
		for (int round = 0; round < rounds; round++)
			for (size_t i = 0; i < d.n.size(); i++) {
				if (!why[i].empty())
					continue;
				if (run_in_child(ARRIVALS, 0, d.measure, d.n[i]))
					ticks[i].push_back(ticks_of_one());
				else
					why[i] = run->why;
			}
		for (size_t i = 0; i < d.n.size(); i++) {
			std::string n = std::to_string(d.n[i]);
			Row row = {
				d.id + ("." + n), std::string(d.title) + ": " + n, true, {}, why[i]
			};

			if (why[i].empty()) {
				row.figures = { { "p50", spread(ticks[i]).median } };
				add_ratio(row, ticks[i], ticks[0]);
			}
			table.rows.push_back(row);
		}
	}
	return table;
}
