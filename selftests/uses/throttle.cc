// SPDX-License-Identifier: GPL-2.0
/*
 * Self-throttling by a budget of events: threads share a budget for each window of time, here of
 * page faults in a cache; with a PMU it could be cache misses or instructions. The program counts,
 * and only an event that exceeds the budget is delivered, as SIGTRAP in the thread that caused it,
 * which then throttles itself. No counter is polled, no thread supervises the others, and events
 * within the budget cost no signal.
 *
 * Recipe: before the threads are created, open the event with sample_period 1, attr.inherit and
 * sigtrap. The budget and the used part of it are in the program's globals; a new window sets the
 * used part to 0.
 */
#include <sys/mman.h>

#include <barrier>
#include <thread>
#include <vector>

#include "uses/uses.h"

static constexpr uint64_t THREADS = 4, BUDGET = 100, WINDOWS = 5;

/* Pages that fault at their first access, and never again. Each thread has enough of them. */
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
		madvise(map, size_, MADV_NOHUGEPAGE); /* fails if the kernel has no huge pages */
	}
	~Cache() { munmap(const_cast<char *>(base_), size_); }
	Cache(const Cache &) = delete;

	void touch(uint64_t thread, uint64_t page)
	{
		if (page >= PAGES)
			fail("expected SIGTRAP for a thread that exceeds the budget, got none");
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

	/* Throttled threads wait here. When all threads are throttled, a new window begins. */
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
	/* In each window, the budget plus for each thread the event that exceeded it. */
	EXPECT_EQ(all, WINDOWS * (BUDGET + THREADS), "pages touched");
	EXPECT_EQ(in_windows, all, "page faults that the program counted");
	EXPECT_EQ(wrong_windows, 0, "windows that did not use exactly the budget");
	EXPECT_EQ(wrong_threads, 0, "threads without exactly one signal per window");
}
