// SPDX-License-Identifier: GPL-2.0
/*
 * What a hit costs, and what it costs to be stopped at the one that matters: in ticks of the TSC,
 * which in a guest of "qemu -icount shift=0" are instructions. Here is what one hit of a
 * breakpoint costs the task that hits it, by what hangs on the event; the other parts have files
 * of their own.
 */
#include "bench/bench.h"

#include <bpf/bpf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "lib/effects.h"

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

const char *measuring = "";
const std::vector<int> cpus = usable_cpus();

/* _exit(), for it may be a child that ends. */
void give_up(const char *what, const char *why)
{
	fprintf(stderr, "perf_bpf_bench: %s: %s%s%s\n", measuring, what, *why ? ": " : "", why);
	_exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, strerrorname_np(err) ?: "unknown error");
}

void expect(const char *what, uint64_t seen, uint64_t expected)
{
	if (seen != expected)
		give_up((std::to_string(seen) + " " + what + ", not " + std::to_string(expected))
				.c_str());
}

Spread spread(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return { values[values.size() / 2], values.front(), values.back() };
}

void add_ratio(Row &row, const std::vector<double> &ticks, const std::vector<double> &floor)
{
	std::vector<double> ratios;

	if (ticks.size() != floor.size())
		return;
	for (size_t i = 0; i < ticks.size(); i++)
		ratios.push_back(ticks[i] / floor[i]);

	auto [median, least, most] = spread(ratios);

	row.figures.insert(row.figures.end(),
			   { { "ratio", median }, { "least", least }, { "most", most } });
}

double microseconds(double ticks)
{
	const auto clock = [] {
		timespec t;

		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
	};
	static const double ticks_per_microsecond = [=] {
		const uint64_t from = now();
		const double began = clock();

		while (clock() < began + 50000)
			;
		return (now() - from) / (clock() - began);
	}();

	return ticks / ticks_per_microsecond;
}

Bench::Bench(const char *name)
{
	bpf_program *program;

	libbpf_set_print(nullptr);
	skel_ = bench__open();
	if (!skel_)
		setup_failed("bpf object", errno);
	program_ = bpf_object__find_program_by_name(skel_->obj, name);
	bpf_object__for_each_program (program, skel_->obj)
		bpf_program__set_autoload(program, program == program_);
	if (int err = bench__load(skel_))
		setup_failed("bpf() to load the program", -err);
}

void Bench::attach(const Event &event) const
{
	if (ioctl(event.fd(), PERF_EVENT_IOC_SET_BPF, bpf_program__fd(program_)))
		setup_failed("PERF_EVENT_IOC_SET_BPF", errno);
}

uint64_t Bench::runs() const
{
	bpf_prog_info info = {};
	uint32_t size = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_program__fd(program_), &info, &size))
		setup_failed("bpf() to ask for the program's runs", errno);
	return info.run_cnt;
}

static void hit_often(int times)
{
	for (int i = 0; i < times; i++)
		hit(i);
}

static Row measure(const Way &way)
{
	Row row = { way.id, way.title, way.says != Says::NO_PROGRAM };
	const int rt = setsig_signal();
	const bool counts = way.breakpoint == Breakpoint::COUNTS;
	const bool accepted = way.says == Says::NO_PROGRAM || way.says == Says::ACCEPTS;
	std::optional<Event> event;
	std::optional<Ring> ring;
	std::optional<Bench> program;
	Signals signals({ rt, SIGTRAP });

	measuring = way.id;
	if (way.sigtrap && !has_sigtrap()) {
		row.why = "the kernel has no attr.sigtrap";
		return row;
	}
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
		program.emplace(way.says == Says::REJECTS_BY_REGISTERS ? "compares_registers"
								       : "answers");
		program->globals()->verdict = way.says == Says::ACCEPTS;
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
	row.figures = { { "min", taken.front() },
			{ "p50", taken[ROUNDS / 2] },
			{ "p99", taken[ROUNDS * 99 / 100] } };
	return row;
}

static Table hits(int)
{
	Table table;

	for (const Way &way : ways)
		table.rows.push_back(measure(way));
	return table;
}

/* The first is what a run without arguments measures. */
static const struct Part {
	const char *id, *title;
	Table (*measure)(int rounds);
} parts[] = {
	{ "ways", "TSC ticks of one hit", hits },
	{ "stops", "TSC ticks of one arrival that is not the one to stop at", stops },
	{ "scaling", "TSC ticks of one rejected hit, by how many there are", scaling },
	{ "profile", "a profile: what it takes of a CPU, and of its samples", profile },
	{ "replay", "microseconds of CPU time to get to the n-th arrival", replay },
};

/* A virtual machine may see to exceptions itself, which then cost it microseconds. */
static bool is_virtual()
{
#ifdef __x86_64__
	unsigned a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) && c & 1u << 31;
#else
	return !access("/sys/hypervisor", F_OK);
#endif
}

static std::string number(double value)
{
	char text[32];

	snprintf(text, sizeof(text), value == std::round(value) ? "%.0f" : "%.3f", value);
	return text;
}

static void print_table(const Part &part, const Table &table)
{
	bool heading = false;

	for (const Row &row : table.rows) {
		if (!heading && row.why.empty()) {
			heading = printf("%-60s", part.title);
			for (auto &[name, value] : row.figures)
				printf(" %10s", name);
			putchar('\n');
		}
		printf("%-60s", row.title.c_str());
		for (auto &[name, value] : row.figures)
			printf(" %10s", number(value).c_str());
		if (!row.why.empty())
			printf(" not measured: %s", row.why.c_str());
		putchar('\n');
	}
	for (const std::string &line : table.notes)
		printf("# %s\n", line.c_str());
	putchar('\n');
}

static void print_json(const Part &part, const Table &table)
{
	const char *comma = "";

	printf(",\n\"%s\": [", part.id);
	for (const Row &row : table.rows) {
		printf("%s\n  {\"id\": \"%s\", \"title\": \"%s\", \"program\": %s, \"available\": "
		       "%s",
		       comma, row.id.c_str(), row.title.c_str(), row.program ? "true" : "false",
		       row.why.empty() ? "true" : "false");
		comma = ",";
		for (auto &[name, value] : row.figures)
			printf(", \"%s\": %s", name, number(value).c_str());
		if (!row.why.empty())
			printf(", \"why\": \"%s\"", row.why.c_str());
		putchar('}');
	}
	printf("\n],\n\"%s.title\": \"%s\",\n\"%s.notes\": [", part.id, part.title, part.id);
	comma = "";
	for (const std::string &line : table.notes) {
		printf("%s\n  \"%s\"", comma, line.c_str());
		comma = ",";
	}
	printf("]");
}

static const char usage[] =
	"usage: perf_bpf_bench [--json] [--rounds N] [PART...]\n"
	"Measures what one hit of a breakpoint costs, in ticks of the TSC.\n"
	"  ways         by what hangs on the event (without a PART, this one)\n"
	"  stops        against other ways to stop at the one arrival that matters\n"
	"  scaling      with more breakpoints, threads, CPUs, conditions, inherited events\n"
	"  profile      samples read from a ring, against samples counted in the kernel\n"
	"  replay       the time it takes to get to the n-th arrival\n"
	"  --rounds N   measures all but the first that often (7)\n"
	"  --json       one JSON object instead of tables\n"
	"  -h, --help   this text\n";

[[noreturn]] static void bad_usage(const char *what, const char *argument)
{
	fprintf(stderr, "perf_bpf_bench: %s%s (try --help)\n", what, argument);
	exit(2);
}

int main(int argc, char **argv)
{
	std::vector<const Part *> wanted;
	bool json = false;
	int rounds = 7;
	utsname kernel;

	for (int i = 1; i < argc; i++) {
		auto part = std::find_if(std::begin(parts), std::end(parts),
					 [=](const Part &p) { return !strcmp(p.id, argv[i]); });

		if (part != std::end(parts)) {
			wanted.push_back(part);
		} else if (!strcmp(argv[i], "--json")) {
			json = true;
		} else if (!strcmp(argv[i], "--rounds")) {
			char *end = argv[i];

			if (++i < argc)
				rounds = strtol(argv[i], &end, 10);
			if (i == argc || *end || rounds < 1 || rounds > 1000)
				bad_usage("--rounds wants a number from 1 to 1000", "");
		} else if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
			fputs(usage, stdout);
			return 0;
		} else {
			bad_usage("unknown argument ", argv[i]);
		}
	}
	if (wanted.empty())
		wanted.push_back(parts);

	/* A user without the right to lock memory measures all the same: the warm-up touches it. */
	mlockall(MCL_CURRENT | MCL_FUTURE);
	run_on(cpus.back());
	uname(&kernel);
	if (json)
		printf("{\"rounds\": %d, \"kernel\": \"%s\", \"virtual\": %s", rounds,
		       kernel.release, is_virtual() ? "true" : "false");
	for (const Part *part : wanted) {
		Table table = part->measure(rounds);

		json ? print_json(*part, table) : print_table(*part, table);
		fflush(stdout);
	}
	if (json)
		printf("\n}\n");
	return 0;
}
