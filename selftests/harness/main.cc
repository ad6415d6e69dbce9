// SPDX-License-Identifier: GPL-2.0
#include "harness/test.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdarg>
#include <cstring>
#include <algorithm>
#include <vector>

#include <kselftest.h>

#include "lib/perf.h"

/* The contract. */
static constexpr struct {
	const char *name, *holds;
} rules[] = {
	{ "C1", "a program that returns 0 leaves no visible side effect" },
	{ "C2", "a program that returns anything else changes nothing" },
	{ "C3", "the count of an event is every hit, suppressed or not" },
	{ "C4", "clocks and counters are throttled as ever, a lone breakpoint never is" },
	{ "C5", "programs of other types run once, where they ran before" },
	{ "C6", "no accepted hit is lost, whoever attaches and detaches" },
	{ "C7", "a program never sees the cookie of another" },
	{ "C8", "attaching and detaching are safe against each other, fork and exit" },
	{ "C9", "MODIFY_ATTRIBUTES keeps program, cookie and what is left of the limit" },
	{ "C10", "an event that used up its limit, or was throttled, comes back" },
	{ "C11", "a kernel without BPF or tracing behaves as with no program" },
	{ "C12", "ptrace and the other users of breakpoints are unaffected" },
	{ "C15", "a filter gives nobody a right, and nobody the machine" },
};

/* Constructed on first use: tests register from other files' static initialisers. */
static std::vector<Test> &tests()
{
	static std::vector<Test> all;

	return all;
}

bool add_test(Test test)
{
	tests().push_back(std::move(test));
	return true;
}

/*
 * In the child. Each line for the parent starts with its kind: '#' a diagnostic line, and as the
 * last one 'P', 'F' or 'S', the verdict.
 */
static int to_parent = -1;
/*
 * In memory that the test's own children share: their expectations count, too, and what one of
 * them cannot do the test has not done.
 */
static struct Shared {
	bool failed, skipped;
} *shared;

static void say(char kind, const std::string &text)
{
	std::string line = kind + text + '\n';

	if (write(to_parent, line.data(), line.size()) < 0)
		_exit(1);
}

[[noreturn]] static void end_test(char verdict)
{
	say(shared->failed ? 'F' : shared->skipped ? 'S' : verdict, "");
	_exit(0);
}

static std::string format_text(const char *format, va_list args)
{
	char text[512];

	vsnprintf(text, sizeof(text), format, args);
	return text;
}

void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say('#', format_text(format, args));
	va_end(args);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say('#', format_text(format, args));
	va_end(args);
	shared->failed = true;
	end_test('F');
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say('#', format_text(format, args));
	va_end(args);
	shared->skipped = true;
	end_test('S');
}

void expected(const std::string &want, const std::string &got, const char *what, const char *file,
	      int line)
{
	shared->failed = true;
	say('#', "expected " + want + ", got " + got + ": " + what + " (" + file + ":" +
			 std::to_string(line) + ")");
}

void setup_failed(const char *what, int err)
{
	fail("%s: %s", what, strerror(err));
}

void unavailable(const char *reason)
{
	skip("%s", reason);
}

[[noreturn]] static void child_main(const Test &test, int pipe)
{
	void *map = mmap(nullptr, sizeof(*shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		_exit(1);
	shared = static_cast<Shared *>(map);
	to_parent = pipe;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	/* Only the parent may write KTAP. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	test.run();
	end_test('P');
}

/* In the parent. */
struct Outcome {
	char verdict = 0; /* 'P', 'F', 'S' */
	std::vector<std::string> lines;
};

/*
 * What the test and its own children have written until the test exits or its time is up; the
 * children may outlive it with the pipe open, so it is the exit that counts, not the pipe's end.
 */
static std::string listen_to(int pipe, pid_t pid, int seconds, bool *in_time)
{
	Fd exit(syscall(SYS_pidfd_open, pid, 0));
	pollfd fds[] = { { pipe, POLLIN, 0 }, { exit.get(), POLLIN, 0 } };
	long end = milliseconds_now() + seconds * 1000;
	std::string text;
	char buffer[4096];

	*in_time = true;
	for (;;) {
		long left = end - milliseconds_now();

		if (left <= 0 || poll(fds, 2, left) == 0) {
			*in_time = false;
			return text;
		}

		/* In this order: all that was written before an exit is there once we know of it. */
		ssize_t n = read(pipe, buffer, sizeof(buffer));

		if (n > 0)
			text.append(buffer, n);
		else if (fds[1].revents)
			return text;
		else if (n == 0)
			fds[0].fd = -1;
	}
}

static Outcome run_test(const Test &test)
{
	Outcome outcome;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		ksft_exit_fail_msg("pipe2: %s\n", strerror(errno));
	Fd from_child(ends[0]), to_child(ends[1]);

	fflush(stdout);
	pid_t pid = fork();

	if (pid < 0)
		ksft_exit_fail_msg("fork: %s\n", strerror(errno));
	if (!pid)
		child_main(test, to_child.get());
	to_child.close();

	bool in_time;
	std::string text = listen_to(from_child.get(), pid, test.seconds, &in_time);
	int status = 0;

	/* First the leader by its own id: it may not have reached setsid() yet. */
	if (!in_time)
		kill(pid, SIGKILL);
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);

	for (size_t at = 0, next; (next = text.find('\n', at)) != text.npos; at = next + 1) {
		if (text[at] == '#')
			outcome.lines.push_back(text.substr(at + 1, next - at - 1));
		else
			outcome.verdict = text[at];
	}
	if (!in_time)
		outcome.lines.push_back("no verdict within " + std::to_string(test.seconds) + " s");
	else if (WIFSIGNALED(status))
		outcome.lines.push_back(std::string("killed by SIG") +
					(sigabbrev_np(WTERMSIG(status)) ?: "?"));
	else if (!outcome.verdict)
		outcome.lines.push_back("exited with no verdict");
	else
		return outcome;
	outcome.verdict = 'F';
	return outcome;
}

/* A kernel splat then names its test in the log. */
static void mark_kernel_log(const Test &test)
{
	Fd kmsg(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
	std::string line = "perf_bpf_filter: test " + test.name + "\n";

	if (kmsg.valid() && write(kmsg.get(), line.data(), line.size()) < 0)
		return; /* a log that takes no marks is no reason not to test */
}

static const char *rule_of(const Test &test)
{
	for (auto &rule : rules)
		if (test.rule == rule.name)
			return rule.holds;
	return "no rule of the contract";
}

static void report(const Test &test, const Outcome &outcome)
{
	const char *name = test.name.c_str();

	for (auto &line : outcome.lines)
		ksft_print_msg("%s: %s\n", name, line.c_str());

	switch (outcome.verdict) {
	case 'P':
		ksft_test_result_pass("%s\n", name);
		break;
	case 'S':
		/* kselftest.h would print "# SKIP name", and consumers want the name first. */
		ksft_inc_xskip_cnt();
		printf("ok %u %s # SKIP\n", ksft_test_num(), name);
		break;
	default:
		ksft_print_msg("%s: %s\n", name, test.says.c_str());
		ksft_print_msg("%s: rule %s: %s\n", name, test.rule.c_str(), rule_of(test));
		ksft_test_result_fail("%s\n", name);
	}
	fflush(stdout);
}

static const char usage[] =
	"usage: perf_bpf_filter [-l] [PATTERN...]\n"
	"Runs the tests whose names match a PATTERN (shell globs, \"effects.*\"), or all of them,\n"
	"and prints KTAP. A kernel that fails a test \"oops.*\" dies of it: these run only for a\n"
	"PATTERN that begins with \"oops\", on a machine that you can spare.\n"
	"Exit code 0: passed, 1: a test failed, 2: wrong usage, 4: all skipped.\n"
	"  -l, --list   list names, rules of the contract and what each test says\n"
	"  -h, --help   this text\n";

[[noreturn]] static void usage_error(const char *what, const char *arg)
{
	fprintf(stderr, "perf_bpf_filter: %s%s (try --help)\n", what, arg);
	exit(2);
}

/* A kernel that fails one of these takes the machine with it, so "*" does not mean them. */
static bool endangers(const std::string &name)
{
	return name.starts_with("oops");
}

static std::vector<Test> select_tests(char **patterns, bool list)
{
	std::vector<Test> chosen;

	std::stable_sort(tests().begin(), tests().end(),
			 [](auto &a, auto &b) { return a.name < b.name; });
	if (!*patterns) {
		std::copy_if(tests().begin(), tests().end(), std::back_inserter(chosen),
			     [&](auto &test) { return list || !endangers(test.name); });
		return chosen;
	}

	auto matches = [](const char *pattern, const Test &test) {
		return !fnmatch(pattern, test.name.c_str(), 0) &&
		       (endangers(pattern) || !endangers(test.name));
	};

	for (char **p = patterns; *p; p++)
		if (std::none_of(tests().begin(), tests().end(),
				 [&](auto &test) { return matches(*p, test); }))
			usage_error("no test matches ", *p);
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
	static const option options[] = {
		{ "list", no_argument, nullptr, 'l' },
		{ "help", no_argument, nullptr, 'h' },
		{},
	};
	bool list = false;

	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, "lh", options, nullptr)) != -1;) {
		if (c == 'h') {
			fputs(usage, stdout);
			return 0;
		}
		if (c != 'l')
			usage_error("unknown option ", argv[optind - 1]);
		list = true;
	}

	std::vector<Test> chosen = select_tests(argv + optind, list);

	if (list) {
		for (auto &test : chosen)
			printf("%-36s %-4s %s\n", test.name.c_str(), test.rule.c_str(),
			       test.says.c_str());
		return 0;
	}

	ksft_print_header();
	ksft_set_plan(chosen.size());
	for (auto &test : chosen) {
		mark_kernel_log(test);
		report(test, run_test(test));
	}
	ksft_print_cnts();
	fflush(stdout);

	/* Not ksft_finished(): a run that skipped everything is a skip, but never hides a failure. */
	if (ksft_get_fail_cnt())
		return KSFT_FAIL;
	return ksft_get_xskip_cnt() == static_cast<int>(chosen.size()) ? KSFT_SKIP : KSFT_PASS;
}
