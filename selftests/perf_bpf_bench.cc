// SPDX-License-Identifier: GPL-2.0
/*
 * Measures what one hit of a breakpoint costs the task that hits it, by what hangs on the event:
 * in ticks of the TSC, which in a guest of "scripts/boot --accel icount" are instructions.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "effects.h"
#include "perf.h"

#include <bench.skel.h>

enum class Breakpoint { NONE, COUNTS, SAMPLES };
enum class Says { NO_PROGRAM, REJECTS, REJECTS_BY_REGISTERS, ACCEPTS };

struct Way {
	const char *id, *title;
	Breakpoint breakpoint = Breakpoint::SAMPLES;
	Says says = Says::NO_PROGRAM;
	bool ring = false; /* mapped; nobody sleeps in poll(2) */
	bool async = false; /* O_ASYNC and F_SETSIG, to the thread that hits */
	bool sigtrap = false; /* attr.sigtrap: to itself */
};

static constexpr Way ways[] = {
	{ .id = "bare", .title = "bare call", .breakpoint = Breakpoint::NONE },
	{ .id = "counting",
	  .title = "counting breakpoint (the floor)",
	  .breakpoint = Breakpoint::COUNTS },
	{ .id = "sampling", .title = "sampling, no ring" },
	{ .id = "sampling.ring", .title = "sampling, ring", .ring = true },
	{ .id = "async", .title = "O_ASYNC, no program", .async = true },
	{ .id = "sigtrap", .title = "sigtrap, no program", .sigtrap = true },
	{ .id = "rejects", .title = "program rejects", .says = Says::REJECTS },
	{ .id = "rejects.ring",
	  .title = "program rejects, ring",
	  .says = Says::REJECTS,
	  .ring = true },
	{ .id = "rejects.async",
	  .title = "program rejects, O_ASYNC",
	  .says = Says::REJECTS,
	  .async = true },
	{ .id = "rejects.sigtrap",
	  .title = "program rejects, sigtrap",
	  .says = Says::REJECTS,
	  .sigtrap = true },
	{ .id = "rejects.registers",
	  .title = "program rejects by 16 registers, O_ASYNC",
	  .says = Says::REJECTS_BY_REGISTERS,
	  .async = true },
	{ .id = "accepts", .title = "program accepts", .says = Says::ACCEPTS },
	{ .id = "accepts.ring",
	  .title = "program accepts, ring",
	  .says = Says::ACCEPTS,
	  .ring = true },
	{ .id = "accepts.async",
	  .title = "program accepts, O_ASYNC",
	  .says = Says::ACCEPTS,
	  .async = true },
	{ .id = "accepts.sigtrap",
	  .title = "program accepts, sigtrap",
	  .says = Says::ACCEPTS,
	  .sigtrap = true },
};

static constexpr int WARM_UP = 100, ROUNDS = 1000;
static std::array<uint64_t, ROUNDS> taken;

struct Cost {
	bool available;
	uint64_t min, p50, p99;
};

[[noreturn]] static void give_up(const char *id, const char *what, const char *why)
{
	fprintf(stderr, "perf_bpf_bench: %s: %s%s%s\n", id, what, *why ? ": " : "", why);
	exit(2);
}

static const char *measuring = "";

void setup_failed(const char *what, int err)
{
	give_up(measuring, what, strerrorname_np(err) ?: "unknown error");
}

void unavailable(const char *reason)
{
	give_up(measuring, reason, "");
}

static uint64_t now()
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
#endif
}

class Bench {
public:
	explicit Bench(Says says)
	{
		libbpf_set_print(nullptr);
		skel_ = bench__open();
		if (!skel_)
			setup_failed("bpf object", errno);

		bool registers = says == Says::REJECTS_BY_REGISTERS;
		bpf_program *wanted =
			registers ? skel_->progs.compares_registers : skel_->progs.answers;

		bpf_program__set_autoload(skel_->progs.compares_registers, registers);
		bpf_program__set_autoload(skel_->progs.answers, !registers);
		skel_->bss->verdict = says == Says::ACCEPTS;
		if (int err = bench__load(skel_))
			setup_failed("bpf() to load the program", -err);
		prog_fd_ = bpf_program__fd(wanted);
	}
	~Bench()
	{
		bench__destroy(skel_);
	}
	Bench(const Bench &) = delete;

	void attach(const Event &event) const
	{
		if (ioctl(event.fd(), PERF_EVENT_IOC_SET_BPF, prog_fd_))
			setup_failed("PERF_EVENT_IOC_SET_BPF", errno);
	}

	/* As the kernel counts them, while somebody holds what bpf_enable_stats() returns. */
	uint64_t runs() const
	{
		bpf_prog_info info = {};
		uint32_t size = sizeof(info);

		if (bpf_obj_get_info_by_fd(prog_fd_, &info, &size))
			setup_failed("bpf() to ask for the program's runs", errno);
		return info.run_cnt;
	}

private:
	bench *skel_;
	int prog_fd_;
};

/* Whether the hits were what the way says they are; a figure of something else is worse than none. */
static void expect(const char *what, uint64_t seen, uint64_t expected)
{
	if (seen == expected)
		return;
	fprintf(stderr, "perf_bpf_bench: %s: %llu %s, not %llu\n", measuring,
		static_cast<unsigned long long>(seen), what,
		static_cast<unsigned long long>(expected));
	exit(2);
}

static void hit_often(int times)
{
	for (int i = 0; i < times; i++)
		hit(i);
}

static Cost measure(const Way &way)
{
	const int rt = setsig_signal();
	const bool counts = way.breakpoint == Breakpoint::COUNTS;
	const bool accepted = way.says == Says::NO_PROGRAM || way.says == Says::ACCEPTS;
	std::optional<Event> event;
	std::optional<Ring> ring;
	std::optional<Bench> program;
	Signals signals({ rt, SIGTRAP });

	measuring = way.id;
	if (way.sigtrap && !has_sigtrap())
		return {};
	if (way.breakpoint != Breakpoint::NONE) {
		perf_event_attr attr = breakpoint(hit);

		if (counts)
			attr.sample_period = attr.wakeup_events = attr.sample_type = 0;
		attr.sigtrap = way.sigtrap;
		attr.remove_on_exec = way.sigtrap; /* sigtrap asks for it */
		event.emplace(attr);
	}
	if (way.ring)
		ring.emplace(*event);
	if (way.async)
		event->async(rt, gettid());
	if (way.says != Says::NO_PROGRAM) {
		program.emplace(way.says);
		program->attach(*event);
	}
	if (event)
		event->enable();

	/* The program's runs are counted in the warm-up alone, since that has a price of its own. */
	{
		Fd stats(program ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1);

		hit_often(WARM_UP);
		if (program && stats.valid())
			expect("runs of the program", program->runs(), WARM_UP);
	}
	hit_often(WARM_UP);
	for (auto &t : taken) {
		uint64_t before = now();

		hit(before);
		t = now() - before;
	}
	if (event) {
		event->disable();
		expect("hits counted", event->count(), 2 * WARM_UP + ROUNDS);
	}
	/* Of a rejected hit they are what stock and patched differ in. */
	if (accepted) {
		const uint64_t all = 2 * WARM_UP + ROUNDS;

		expect("signals", Signals::count(rt), way.async ? all : 0);
		expect("SIGTRAPs", Signals::count(SIGTRAP), way.sigtrap ? all : 0);
	}
	if (ring) {
		ring->drain();
		expect("samples", ring->samples(), accepted ? 2 * WARM_UP + ROUNDS : 0);
	}

	std::sort(taken.begin(), taken.end());
	return { .available = true,
		 .min = taken.front(),
		 .p50 = taken[ROUNDS / 2],
		 .p99 = taken[ROUNDS * 99 / 100] };
}

static void print_table(const Cost *costs)
{
	printf("%-42s %10s %10s %10s\n", "TSC ticks for one hit", "min", "p50", "p99");
	for (const Way &way : ways) {
		const Cost &cost = *costs++;

		printf("%-42s", way.title);
		if (cost.available)
			printf(" %10llu %10llu %10llu\n", static_cast<unsigned long long>(cost.min),
			       static_cast<unsigned long long>(cost.p50),
			       static_cast<unsigned long long>(cost.p99));
		else
			printf(" %10s\n", "unavailable");
	}
}

static void print_json(const Cost *costs)
{
	printf("{\"rounds\": %d, \"ways\": [", ROUNDS);
	for (const Way &way : ways) {
		const Cost &cost = *costs++;

		printf("%s\n  {\"id\": \"%s\", \"title\": \"%s\", \"program\": %s, \"available\": "
		       "%s",
		       &way == ways ? "" : ",", way.id, way.title,
		       way.says == Says::NO_PROGRAM ? "false" : "true",
		       cost.available ? "true" : "false");
		if (cost.available)
			printf(", \"min\": %llu, \"p50\": %llu, \"p99\": %llu",
			       static_cast<unsigned long long>(cost.min),
			       static_cast<unsigned long long>(cost.p50),
			       static_cast<unsigned long long>(cost.p99));
		putchar('}');
	}
	printf("\n]}\n");
}

static const char usage[] = "usage: perf_bpf_bench [--json]\n"
			    "Measures what one hit of a breakpoint costs, by what hangs on the "
			    "event, in ticks of the TSC.\n"
			    "  --json       one JSON object instead of the table\n"
			    "  -h, --help   this text\n";

int main(int argc, char **argv)
{
	bool json = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--json")) {
			json = true;
		} else if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			fputs(usage, stdout);
			return 0;
		} else {
			fprintf(stderr, "perf_bpf_bench: unknown argument %s (try --help)\n",
				argv[i]);
			return 2;
		}
	}

	Cost costs[std::size(ways)];

	/* A user without the right to lock memory measures all the same: the warm-up touches it. */
	mlockall(MCL_CURRENT | MCL_FUTURE);
	run_on(usable_cpus().back());
	for (size_t i = 0; i < std::size(ways); i++)
		costs[i] = measure(ways[i]);
	json ? print_json(costs) : print_table(costs);
	return 0;
}
