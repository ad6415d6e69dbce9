// SPDX-License-Identifier: GPL-2.0
/*
 * Measures the cost of a hit, and of stopping at the one hit that matters, in ticks of now(). In a
 * guest of "qemu -icount shift=0" a tick is an instruction.
 */
#include "bench/bench.h"

#include <sys/mman.h>
#include <sys/utsname.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "lib/args.h"
#include "lib/clock.h"
#include "lib/cpus.h"
#include "lib/effects.h"
#include "lib/fail.h"
#include "lib/json.h"

const char *measuring = "";
const std::vector<int> cpus = usable_cpus();

/* _exit(), because it may be called in a child. */
void give_up(const char *what, const char *why)
{
	fprintf(stderr, "perf_bpf_bench: %s: %s%s%s\n", measuring, what, *why ? ": " : "", why);
	_exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, errno_name(err).c_str());
}

void expect(const char *things, uint64_t seen, uint64_t expected)
{
	if (seen != expected)
		give_up(("expected " + quantity(std::to_string(expected), things) + ", got " +
			 std::to_string(seen))
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
	const auto clock = [] { return nanoseconds_now(CLOCK_MONOTONIC_RAW) / 1e3; };
	static const double ticks_per_microsecond = [=] {
		const uint64_t from = now();
		const double began = clock();

		while (clock() < began + 50000)
			;
		return (now() - from) / (clock() - began);
	}();

	return ticks / ticks_per_microsecond;
}

/* The first one is measured if there are no arguments. */
static const struct Part {
	const char *id, *title;
	Table (*measure)(int rounds);
} parts[] = {
	{ "ways", "ticks of one hit", hits },
	{ "overflows", "ticks of one overflow in an NMI", overflows },
	{ "stops", "ticks of one arrival that is not the one to stop at", stops },
};

/* In a virtual machine, exceptions may exit to the hypervisor, which takes microseconds. */
static bool is_virtual()
{
#ifdef __x86_64__
	unsigned a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) && c & 1u << 31;
#else
	return !access("/sys/hypervisor", F_OK);
#endif
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
			printf(" %10s", Json::number(value).c_str());
		if (!row.why.empty())
			printf(" not measured: %s", row.why.c_str());
		putchar('\n');
	}
	putchar('\n');
}

static void print_json(Json &json, const Part &part, const Table &table)
{
	const std::string id = part.id;

	json.name(id).begin('[', true);
	for (const Row &row : table.rows) {
		json.begin('{')
			.field("id", row.id)
			.field("title", row.title)
			.field("program", row.program)
			.field("available", row.why.empty());
		for (auto &[name, value] : row.figures)
			json.field(name, value);
		if (!row.why.empty())
			json.field("why", row.why);
		json.end();
	}
	json.end().field(id + ".title", part.title);
}

static const char usage[] =
	"usage: perf_bpf_bench [--json] [--rounds N] [PART...]\n"
	"Measures the cost of one breakpoint hit, in ticks of the TSC or, on arm64, of the "
	"virtual\n"
	"counter. The parts are:\n"
	"  ways         a hit, for different set-ups of the event (the default)\n"
	"  overflows    an overflow of a hardware counter in an NMI, for the same set-ups\n"
	"  stops        different ways to stop at the one arrival that matters\n"
	"  --rounds N   measure each technique of the part stops N times (default 7)\n"
	"  --json       print one JSON object instead of tables\n";

int main(int argc, char **argv)
{
	std::vector<const Part *> wanted;
	bool as_json = false;
	uint64_t rounds = 7;
	utsname kernel;

	for (char **id = parse_arguments(
		     argc, argv, usage,
		     { { "json", &as_json }, { "rounds", nullptr, &rounds, 1, 1000 } });
	     *id; id++) {
		auto part = std::find_if(std::begin(parts), std::end(parts),
					 [=](const Part &p) { return !strcmp(p.id, *id); });

		if (part == std::end(parts))
			bad_usage("unknown argument ", *id);
		wanted.push_back(part);
	}
	if (wanted.empty())
		wanted.push_back(parts);

	for (const Part *part : wanted) {
		measuring = part->id;
		if (part->measure != overflows && *why_not_hit())
			give_up(why_not_hit());
	}

	/* This may fail without the right to lock memory; the warm-up touches the pages anyway. */
	mlockall(MCL_CURRENT | MCL_FUTURE);
	run_on(cpus.back());
	uname(&kernel);

	Json json;

	if (as_json)
		json.begin('{')
			.field("rounds", rounds)
			.field("kernel", kernel.release)
			.field("virtual", is_virtual());
	for (const Part *part : wanted) {
		Table table = part->measure(rounds);

		as_json ? print_json(json, *part, table) : print_table(*part, table);
		fflush(stdout);
	}
	if (as_json)
		json.end();
	return 0;
}
