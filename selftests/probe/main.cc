// SPDX-License-Identifier: GPL-2.0
/*
 * Reports which side effects of a hit the running kernel suppresses when the event's BPF program
 * returns 0, and how a task continues after a reported hit. The kernel has no feature bit for this,
 * so the probe measures it.
 */
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "lib/args.h"
#include "lib/child.h"
#include "lib/effects.h"
#include "lib/fail.h"
#include "lib/fd.h"
#include "lib/json.h"
#include "lib/rights.h"
#include "probe/stops.h"

enum class Outcome { MEASURED, UNAVAILABLE, FAILED, KILLED };

/* The result that a measuring child sends to its parent. */
struct Report {
	Outcome outcome;
	Observed seen;
	char reason[200];
};

static int to_parent = -1;

[[noreturn]] static void send(const Report &report)
{
	_exit(write(to_parent, &report, sizeof(report)) != sizeof(report));
}

[[noreturn]] __attribute__((format(printf, 2, 3))) static void give_up(Outcome outcome,
								       const char *format, ...)
{
	Report report = {};
	va_list args;

	report.outcome = outcome;
	va_start(args, format);
	vsnprintf(report.reason, sizeof(report.reason), format, args);
	va_end(args);
	send(report);
}

void setup_failed(const char *what, int err)
{
	if (to_parent < 0) {
		fprintf(stderr, "perf_bpf_probe: %s: %s\n", what, errno_name(err).c_str());
		_exit(2);
	}

	give_up(err == ENOSYS ? Outcome::UNAVAILABLE : Outcome::FAILED, "%s: %s", what,
		errno_name(err).c_str());
}

void unavailable(const char *reason)
{
	give_up(Outcome::UNAVAILABLE, "%s", reason);
}

/* Measures in a child, so that a stray SIGTRAP terminates one measurement and not the probe. */
template <typename Body> static Report in_child(Body body)
{
	constexpr int DEADLINE_SECONDS = 10;
	Report report = {};
	Pipe pipe;
	Child child([&] {
		to_parent = pipe.in.get();
		alarm(DEADLINE_SECONDS);
		send({ Outcome::MEASURED, body(), "" });
		return 0;
	});

	pipe.in.close();
	if (read(pipe.out.get(), &report, sizeof(report)) != sizeof(report)) {
		report.outcome = Outcome::KILLED;
		snprintf(report.reason, sizeof(report.reason), "the measuring process: %s",
			 status_text(child.wait()).c_str());
	}
	return report;
}

static Report measure(const Setup &setup, Verdict verdict)
{
	return in_child([&] { return observe(setup, verdict); });
}

enum class Result { SUPPRESSED, SEEN, UNAVAILABLE, UNKNOWN };

struct Finding {
	Result result;
	uint64_t seen;
	char reason[200];
};

static Finding probe(const Effect &effect)
{
	Report rejected = measure(effect.setup, rejects);
	Finding found = { Result::UNKNOWN, rejected.seen.*effect.seen, "" };
	auto because = [&](Result result, const char *reason) {
		found.result = result;
		snprintf(found.reason, sizeof(found.reason), "%s", reason);
		return found;
	};

	if (rejected.outcome == Outcome::UNAVAILABLE)
		return because(Result::UNAVAILABLE, rejected.reason);
	if (rejected.outcome != Outcome::MEASURED)
		return because(Result::UNKNOWN, rejected.reason);
	if (!rejected.seen.runs)
		return because(Result::UNKNOWN, "the program did not run");

	if (found.seen)
		return because(Result::SEEN, "");

	/*
	 * An effect that never occurs would look suppressed, so check that accepted hits have it.
	 * More effects than hits are fine here: probe(stop) reports hits that repeat.
	 */
	Report accepted = measure(effect.setup, { true, 1 });

	if (accepted.outcome != Outcome::MEASURED)
		return because(Result::UNKNOWN, accepted.reason);
	if (accepted.seen.*effect.seen < effect.accepted_seen)
		return because(Result::UNKNOWN, "accepted hits do not show it either");

	return because(Result::SUPPRESSED, "");
}

/* How the task continues, in a few words for the output. */
static const char *probe(const Stop &stop)
{
	const Report report = in_child([&] {
		Observed seen = {};

		seen.count = stop.measure();
		return seen;
	});

	if (report.outcome != Outcome::MEASURED)
		return report.outcome == Outcome::UNAVAILABLE ? "unavailable" : "unknown";
	return report.seen.count < HITS	  ? stop.when_fewer
	       : report.seen.count > HITS ? stop.when_more
					  : "works";
}

/* The reason if nothing can be measured on this machine, else "". */
static std::string why_unusable()
{
	if (const std::string missing = missing_rights(); !missing.empty())
		return "needs " + missing;

	const Report bare = measure({}, no_program);

	return bare.outcome == Outcome::MEASURED ? why_not_hit() : bare.reason;
}

static const char *result_text(const Effect &effect, const Finding &found)
{
	switch (found.result) {
	case Result::SUPPRESSED:
		return effect.when_not;
	case Result::SEEN:
		return effect.when_seen;
	case Result::UNAVAILABLE:
		return "unavailable";
	default:
		return "unknown";
	}
}

static const char *verdict_on(const Finding *found)
{
	int number[4] = {};

	for (int i = 0; i < EFFECTS; i++)
		number[static_cast<int>(found[i].result)]++;
	if (number[static_cast<int>(Result::UNKNOWN)])
		return "unknown";
	if (!number[static_cast<int>(Result::SUPPRESSED)])
		return number[static_cast<int>(Result::SEEN)] ? "none" : "unknown";
	return number[static_cast<int>(Result::SEEN)] ? "partial" : "full";
}

static void print_table(const utsname &kernel, const Finding *found, const char *verdict,
			const char *const *how)
{
	static constexpr const char *colours[] = { "\033[32m", "\033[31m", "\033[2m", "\033[33m" };
	bool terminal = isatty(STDOUT_FILENO);

	printf("Linux %s %s: effects of %d hits whose program returns 0\n\n", kernel.release,
	       kernel.machine, static_cast<int>(HITS));
	for (int i = 0; i < EFFECTS; i++) {
		printf("  %-38s %s%s%s", effects[i].title,
		       terminal ? colours[static_cast<int>(found[i].result)] : "",
		       result_text(effects[i], found[i]), terminal ? "\033[0m" : "");
		if (found[i].result == Result::SEEN)
			printf(" (%llu)", static_cast<unsigned long long>(found[i].seen));
		else if (*found[i].reason)
			printf(" (%s)", found[i].reason);
		putchar('\n');
	}
	printf("\nsuppression: %s\n\n", verdict);
	for (int i = 0; i < STOPS; i++)
		printf("  %-38s %s%s%s\n", stops[i].title,
		       terminal ? colours[int(strcmp(how[i], "works") ? Result::SEEN
								      : Result::SUPPRESSED)]
				: "",
		       how[i], terminal ? "\033[0m" : "");
}

static void print_json(const utsname &kernel, const Finding *found, const char *verdict,
		       const char *const *how, const std::string &broken)
{
	Json json;

	json.begin('{').field("kernel", kernel.release).field("machine", kernel.machine);
	json.name("effects").begin('[', true);
	for (int i = 0; i < EFFECTS; i++) {
		json.begin('{')
			.field("id", effects[i].id)
			.field("title", effects[i].title)
			.field("result", result_text(effects[i], found[i]))
			.field("rejected_hits", HITS)
			.field("seen", found[i].seen);
		if (*found[i].reason)
			json.field("reason", found[i].reason);
		json.end();
	}
	json.end().name("stops").begin('[', true);
	for (int i = 0; i < STOPS; i++)
		json.begin('{')
			.field("id", stops[i].id)
			.field("title", stops[i].title)
			.field("result", how[i])
			.end();
	json.end().field("verdict", verdict);
	if (!broken.empty())
		json.field("reason", broken);
	json.end();
}

static const char usage[] =
	"usage: perf_bpf_probe [--json]\n"
	"Reports which side effects of a breakpoint hit the running kernel suppresses when the\n"
	"event's BPF program returns 0, and whether a task continues correctly after it was "
	"stopped\n"
	"by a hit or has handled the signal of a hit.\n"
	"Exit code 0: all side effects are suppressed, 1: some or none are, 2: cannot tell.\n"
	"  --json       print one JSON object instead of the table\n";

int main(int argc, char **argv)
{
	bool json = false;

	if (char **more = parse_arguments(argc, argv, usage, { { "json", &json } }); *more)
		bad_usage("unknown argument ", *more);

	utsname kernel;
	Finding found[EFFECTS] = {};
	const char *how[STOPS];

	uname(&kernel);

	const std::string broken = why_unusable();

	for (int i = 0; i < EFFECTS; i++)
		found[i] = broken.empty() ? probe(effects[i]) : Finding{ Result::UNKNOWN, 0, "" };
	for (int i = 0; i < STOPS; i++)
		how[i] = broken.empty() ? probe(stops[i]) : "unknown";

	const char *verdict = verdict_on(found);

	if (json)
		print_json(kernel, found, verdict, how, broken);
	else if (!broken.empty())
		fprintf(stderr, "perf_bpf_probe: cannot tell: %s\n", broken.c_str());
	else
		print_table(kernel, found, verdict, how);

	return !strcmp(verdict, "full") ? 0 : !strcmp(verdict, "unknown") ? 2 : 1;
}
