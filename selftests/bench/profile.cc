// SPDX-License-Identifier: GPL-2.0
/*
 * A profile by a clock: samples that are written to a ring and read from there, compared with
 * samples that a program counts and suppresses. Measures the share of a CPU that they take, and how
 * many of them are lost.
 */
#include <poll.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>

#include "bench/bench.h"
#include "lib/clock.h"
#include "lib/cpus.h"
#include "lib/event.h"
#include "lib/fail.h"

static constexpr double RUNS_FOR = 100e6; /* ns of CPU time of the profiled task */

static const struct Profile {
	const char *id, *title;
	bool samples = true, program = false;
	uint32_t wakeup = 0; /* attr.wakeup_events; 0: at half a ring, like perf record */
} profiles[] = {
	{ .id = "nothing", .title = "no profile", .samples = false },
	{ .id = "ring", .title = "ring, read when it is half full" },
	{ .id = "ring.each", .title = "ring, read at each sample", .wakeup = 1 },
	{ .id = "program", .title = "program counts and suppresses", .program = true },
};
static constexpr int RATES[] = { 1, 10, 50 }; /* kHz */

/* Reads the ring of an event on another CPU, and counts the samples for each address. */
class Reader {
public:
	explicit Reader(const Event &event)
		: fd_(event.fd())
		, map_(mmap(nullptr, PAGE + DATA, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0))
	{
		if (map_ == MAP_FAILED)
			setup_failed("mmap of the ring buffer", errno);
		thread_ = std::thread([this] {
			run_on(cpus.front());
			while (!ended_) {
				pollfd wakes = { fd_, POLLIN, 0 };

				poll(&wakes, 1, 20);
				read();
			}
			read();
			cpu_ = nanoseconds_now(CLOCK_THREAD_CPUTIME_ID);
		});
	}
	/* Returns the CPU time of the reader. */
	double end()
	{
		ended_ = true;
		thread_.join();
		munmap(map_, PAGE + DATA);
		return cpu_;
	}
	uint64_t samples() const { return samples_; }

	static constexpr size_t PAGE = 4096, DATA = 128 * PAGE; /* like perf record */

private:
	void read()
	{
		auto *page = static_cast<perf_event_mmap_page *>(map_);
		const char *data = static_cast<char *>(map_) + PAGE;
		uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
		uint64_t at = page->data_tail;

		while (at != head) {
			auto *header =
				reinterpret_cast<const perf_event_header *>(data + at % DATA);

			if (header->type == PERF_RECORD_SAMPLE) {
				/* A multiple of 8 bytes never wraps. */
				counts_[*reinterpret_cast<const uint64_t *>(
					data + (at + sizeof(*header)) % DATA)]++;
				samples_++;
			}
			at += header->size;
		}
		__atomic_store_n(&page->data_tail, at, __ATOMIC_RELEASE);
	}

	int fd_;
	void *map_;
	std::atomic<bool> ended_ = false;
	double cpu_ = 0;
	uint64_t samples_ = 0;
	std::unordered_map<uint64_t, uint64_t> counts_;
	std::thread thread_;
};

/*
 * The time that interrupts take from a task that only reads the clock: its time on the CPU, in
 * which perf includes interrupts, minus the steps that are as short as those of the bare loop.
 */
static double taken_from_task()
{
	const uint64_t longest = 0.3 * now() / microseconds(now());
	Event turns(software(PERF_COUNT_SW_TASK_CLOCK));
	uint64_t steps = 0;

	turns.enable();
	while (turns.count() < RUNS_FOR) {
		for (uint64_t i = 0, last = now(); i < 10000; i++) {
			uint64_t t = now();

			if (t - last < longest)
				steps += t - last;
			last = t;
		}
	}
	turns.disable();
	return turns.count() - microseconds(steps) * 1000;
}

struct Result {
	double cpu; /* % of one CPU */
	double lost; /* % of the expected samples */
};

static Result measure(const Profile &profile, int khz)
{
	perf_event_attr attr = software(PERF_COUNT_SW_CPU_CLOCK, 1000000 / khz);

	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
	if (profile.wakeup) {
		attr.wakeup_events = profile.wakeup;
	} else {
		attr.watermark = 1;
		attr.wakeup_watermark = Reader::DATA / 2;
	}

	if (!profile.samples)
		return { 100 * taken_from_task() / RUNS_FOR, 0 };

	Event event(attr);
	std::unique_ptr<Bench> bench;
	std::unique_ptr<Reader> reader;
	double taken, samples;

	if (profile.program) {
		bench = std::make_unique<Bench>("profiles");
		event.must_attach(*bench);
	} else {
		reader = std::make_unique<Reader>(event);
	}
	event.enable();
	taken = taken_from_task();
	event.disable();
	if (reader)
		taken += reader->end();
	samples = reader ? reader->samples() : bench->globals()->profiled;
	return { 100 * taken / RUNS_FOR, 100 - 100 * samples * attr.sample_period / event.count() };
}

Table profile(int rounds)
{
	Table table;

	measuring = "profile";
	if (cpus.size() < 2)
		return { {},
			 { "profile: not measured: it requires two CPUs, one for the reader" } };
	for (int khz : RATES) {
		std::vector<double> cpu[std::size(profiles)], lost[std::size(profiles)];

		for (int round = 0; round < rounds; round++)
			for (size_t i = 0; i < std::size(profiles); i++) {
				Result result = measure(profiles[i], khz);

				cpu[i].push_back(result.cpu - (i ? cpu[0].back() : 0));
				lost[i].push_back(result.lost);
			}
		for (size_t i = 1; i < std::size(profiles); i++) {
			auto [median, least, most] = spread(cpu[i]);

			table.rows.push_back({ profiles[i].id + ("." + std::to_string(khz)),
					       std::to_string(khz) + " kHz, " + profiles[i].title,
					       profiles[i].program,
					       { { "CPU, %", median },
						 { "least", least },
						 { "most", most },
						 { "lost, %", spread(lost[i]).median } } });
		}
	}
	return table;
}
