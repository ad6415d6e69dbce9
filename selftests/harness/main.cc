// SPDX-License-Identifier: GPL-2.0
/* The suite's main program: its arguments, the contract, and its KTAP. */
#include <fnmatch.h>
#include <signal.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <vector>

#include <kselftest.h>

#include "harness/race.h"
#include "harness/run.h"
#include "harness/test.h"
#include "lib/args.h"
#include "lib/effects.h"
#include "lib/json.h"
#include "lib/kernel.h"
#include "lib/rights.h"
#include "tests/cells.h"

/* The contract. */
static constexpr struct {
	const char *name, *holds;
} rules[] = {
	{ "C1", "a program that returns 0 leaves no visible side effect" },
	{ "C2", "an accepted hit has every effect that it has without a program" },
	{ "C3", "an event counts every hit, rejected or not" },
	{ "C4", "timers and PMU events are throttled as on stock; a breakpoint outside a group "
		"never is" },
	{ "C5", "kprobe, uprobe and tracepoint programs still run exactly once per hit" },
	{ "C6", "no accepted hit is lost, even while programs are attached and detached" },
	{ "C7", "a program never sees the cookie of another attachment" },
	{ "C8", "attaching and detaching are safe against each other, fork and exit" },
	{ "C9", "MODIFY_ATTRIBUTES keeps the program, its cookie and the remaining limit" },
	{ "C10", "an event that used up its limit or was throttled can count again" },
	{ "C11", "a kernel without BPF or tracing builds, and its events behave as on stock" },
	{ "C12", "ptrace and other users of breakpoints are unaffected" },
	{ "C13",
	  "a task that continues after a stop, a step or a signal handler does not hit again" },
	{ "C14", "a breakpoint hit without a program costs no more instructions than on stock" },
	{ "C15", "a program grants no additional rights and cannot stall the machine" },
	{ "C16", "modules built for the stock kernel load on the patched 5.10, 6.1 and 6.12" },
};

/* Constructed on first use: tests register from other files' static initialisers. */
static std::vector<Test> &tests()
{
	static std::vector<Test> all;

	return all;
}

bool add_test(Test test, CallSite at)
{
	test.file = at.file;
	tests().push_back(std::move(test));
	return true;
}

static const char *rule_of(const Test &test)
{
	for (auto &rule : rules)
		if (test.rule == rule.name)
			return rule.holds;
	return "not a rule of the contract";
}

static void report(const Test &test, const Outcome &outcome)
{
	const char *name = test.name.c_str();

	for (auto &line : outcome.lines)
		ksft_print_msg("%s: %s\n", name, line.c_str());
	if (outcome.met)
		ksft_print_msg("%s met %" PRIu64 " times, floor %" PRIu64 "\n", name,
			       outcome.met->times, outcome.met->least);
	ksft_print_msg("%s took %.3f s\n", name, outcome.seconds);

	switch (outcome.verdict) {
	case 'P':
		ksft_test_result_pass("%s\n", name);
		break;
	case 'S':
		/* kselftest.h would print "# SKIP name", but KTAP has the name first. */
		ksft_inc_xskip_cnt();
		printf("ok %u %s # SKIP\n", ksft_test_num(), name);
		break;
	default:
		ksft_print_msg("%s: %s\n", name, test.description.c_str());
		ksft_print_msg("%s: rule %s: %s\n", name, test.rule.c_str(), rule_of(test));
		ksft_test_result_fail("%s\n", name);
	}
	fflush(stdout);
}

/* For scripts: the rules, the tests that check them, and the table of what happens to an event. */
static void print_rules()
{
	Json json;

	json.begin('{').name("rules").begin('[', true);
	for (auto &rule : rules)
		json.begin('{').field("id", rule.name).field("what", rule.holds).end();
	json.end().name("tests").begin('[', true);
	for (auto &test : tests())
		json.begin('{')
			.field("name", test.name)
			.field("rule", test.rule)
			.field("says", test.description)
			.field("file", test.file)
			.end();
	json.end().name("cells").begin('[', true);
	for (auto &cell : cells())
		json.begin('{')
			.field("table", cell.table)
			.field("row", cell.row)
			.field("column", cell.column)
			.field("test", cell.test)
			.field("why", cell.why)
			.end();
	json.end().end();
}

static const char usage[] =
	"usage: perf_bpf_filter [-l | --rules] [--race-seconds N] [PATTERN...]\n"
	"Runs the tests whose names match a PATTERN (a shell glob such as \"effects.*\"), or all\n"
	"tests, and prints KTAP. The tests \"oops.*\" crash kernels that have the bug, and "
	"\"gdb.*\"\n"
	"take minutes on an emulated CPU: they run only if a PATTERN begins with oops or gdb.\n"
	"Exit code 0: passed, 1: a test failed, 2: wrong usage, 4: all tests were skipped.\n"
	"  -l, --list   list the name, the rule of the contract and the description of each test\n"
	"  --rules      print the rules and all tests, with the file of each, as JSON\n"
	"  --race-seconds N\n"
	"               provoke each race for at most N seconds instead of up to 16, but until "
	"both\n"
	"               sides have met often enough; a test always stops at its first loss\n";

/* "*" does not match these: oops.* crash a kernel that has the bug, and gdb.* are slow. */
static bool runs_only_if_named(const std::string &name)
{
	return name.starts_with("oops") || name.starts_with("gdb");
}

static std::vector<Test> select_tests(char **patterns, bool list)
{
	std::vector<Test> chosen;

	if (!*patterns) {
		std::copy_if(tests().begin(), tests().end(), std::back_inserter(chosen),
			     [&](auto &test) { return list || !runs_only_if_named(test.name); });
		return chosen;
	}

	auto matches = [](const char *pattern, const Test &test) {
		return !fnmatch(pattern, test.name.c_str(), 0) &&
		       (runs_only_if_named(pattern) || !runs_only_if_named(test.name));
	};

	for (char **p = patterns; *p; p++)
		if (std::none_of(tests().begin(), tests().end(),
				 [&](auto &test) { return matches(*p, test); }))
			bad_usage("no test matches ", *p);
	for (auto &test : tests())
		for (char **p = patterns; *p; p++)
			if (matches(*p, test)) {
				chosen.push_back(test);
				break;
			}
	return chosen;
}

int main(int argc, char **argv)
{
	bool list = false, as_rules = false;
	char **patterns = parse_arguments(argc, argv, usage,
					  { { .name = "list", .flag = &list, .letter = 'l' },
					    { "rules", &as_rules },
					    { "race-seconds", nullptr, &race_limit, 1, 3600 } });

	std::stable_sort(tests().begin(), tests().end(),
			 [](auto &a, auto &b) { return a.name < b.name; });
	if (as_rules) {
		print_rules();
		return 0;
	}

	/* The invoker may ignore or block signals. */
	sigset_t none;

	signal(SIGCHLD, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, nullptr);

	std::vector<Test> chosen = select_tests(patterns, list);

	if (list) {
		for (auto &test : chosen)
			printf("%-36s %-4s %s\n", test.name.c_str(), test.rule.c_str(),
			       test.description.c_str());
		return 0;
	}

	ksft_print_header();
	if (const std::string missing = missing_rights(); !missing.empty()) {
		printf("1..0 # SKIP needs %s\n", missing.c_str());
		return KSFT_SKIP;
	}
	/* Most tests need hits. Those that do not can still be run by name. */
	if (const char *why = why_not_hit(); *why) {
		if (!*patterns) {
			printf("1..0 # SKIP %s\n", why);
			return KSFT_SKIP;
		}
		ksft_print_msg("%s: tests that hit one will fail\n", why);
	}
	ksft_set_plan(chosen.size());
	for (auto &test : chosen) {
		write_kernel_log("perf_bpf_filter: test " + test.name);
		report(test, run_test(test));
	}
	ksft_print_cnts();
	fflush(stdout);

	/* Not ksft_finished(): here a run in which all tests were skipped is a skip, too. */
	if (ksft_get_fail_cnt())
		return KSFT_FAIL;
	return ksft_get_xskip_cnt() == static_cast<int>(chosen.size()) ? KSFT_SKIP : KSFT_PASS;
}
