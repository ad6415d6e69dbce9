// SPDX-License-Identifier: GPL-2.0
/*
 * Self-throttling on an event budget: threads share a budget of events for each window of time
 * (page faults in a cache here; cache misses or instructions where there are counters). The
 * program counts, and only the event that exceeds the budget is delivered, as SIGTRAP in the very
 * thread that caused it, which then throttles itself. Nobody polls a counter, no thread watches
 * the others, and what stays within the budget costs no signal.
 *
 * Recipe: before the threads are created, the event with sample_period 1, attr.inherit and
 * sigtrap; the budget and what is used up of it in the program's globals; a new window sets the
 * latter to 0.
 */
#include <sys/mman.h>

#include <barrier>
#include <thread>
#include <vector>

#include "uses/uses.h"

static constexpr uint64_t THREADS = 4, BUDGET = 100, WINDOWS = 5;

/* Pages that fault at their first touch, and never again: each thread has enough for itself. */
class Cache {
public:
	Cache()
		: page_(sysconf(_SC_PAGESIZE))
		, size_(THREADS * PAGES * page_)
	{
		void *map = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (map == MAP_FAILED)
			setup_failed("mmap", errno);
		base_ = static_cast<volatile char *>(map);
		madvise(map, size_, MADV_NOHUGEPAGE); /* EINVAL: there are none */
	}
	~Cache() { munmap(const_cast<char *>(base_), size_); }
	Cache(const Cache &) = delete;

	void touch(uint64_t thread, uint64_t page)
	{
		if (page >= PAGES)
			fail("a thread was not throttled");
		base_[(thread * PAGES + page) * page_] = 1;
	}
	uint64_t begin() const { return reinterpret_cast<uintptr_t>(base_); }
	uint64_t end() const { return begin() + size_; }

private:
	static constexpr uint64_t PAGES = WINDOWS * (BUDGET + 1);
	size_t page_, size_;
	volatile char *base_;
};

static thread_local volatile bool throttled;
static thread_local volatile uint64_t signals;

static void on_overspending(int, siginfo_t *, void *)
{
	throttled = true;
	signals = signals + 1;
}

TEST("uses.throttle", "C1", "each thread stops at its first event beyond the shared budget")
{
	Cache cache;
	Handler handler(SIGTRAP, on_overspending);
	perf_event_attr attr = software(PERF_COUNT_SW_PAGE_FAULTS, 1);

	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;

	Event event = event_in_all_threads(attr);
	Uses uses("throttle");
	volatile auto *globals = uses.globals();
	std::vector<std::thread> threads;
	std::vector<uint64_t> sent(THREADS), touched(THREADS);
	uint64_t in_windows = 0, wrong_windows = 0, all = 0, wrong_threads = 0;

	globals->throttle_from = cache.begin();
	globals->throttle_to = cache.end();
	globals->throttle_budget = BUDGET;
	event.enable(uses);

	/* Who is throttled waits here; when all are, a new window begins. */
	std::barrier window_ends(THREADS, [&]() noexcept {
		const uint64_t used = globals->throttle_used;

		in_windows += used;
		wrong_windows += used != BUDGET + THREADS;
		globals->throttle_used = 0;
	});

	for (uint64_t i = 0; i < THREADS; i++)
		threads.emplace_back([&, i] {
			for (uint64_t window = 0; window < WINDOWS; window++) {
				throttled = false;
				while (!throttled)
					cache.touch(i, touched[i]++);
				window_ends.arrive_and_wait();
			}
			sent[i] = signals;
		});
	for (auto &thread : threads)
		thread.join();

	for (uint64_t i = 0; i < THREADS; i++) {
		all += touched[i];
		wrong_threads += sent[i] != WINDOWS;
	}
	/* The budget, and of each thread the one event that told it. */
	EXPECT_EQ(all, WINDOWS * (BUDGET + THREADS), "pages touched");
	EXPECT_EQ(in_windows, all, "page faults that the program counted");
	EXPECT_EQ(wrong_windows, 0, "windows with more or less than the budget");
	EXPECT_EQ(wrong_threads, 0, "threads not signalled exactly once a window");
}
