// SPDX-License-Identifier: GPL-2.0
#include "harness/run.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "harness/race.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/fail.h"
#include "lib/fd.h"
#include "lib/kernel.h"

/*
 * The child's end of the pipe. The first character of each line that it sends says what the line
 * is: '#' a line of diagnostics, 'M' how often both sides of a race have met, or, in the last line,
 * 'P', 'F' or 'S', the verdict.
 */
static int to_parent = -1;
/*
 * In memory that the test shares with its own children: an expectation that fails in one of them
 * fails the test, and a child that cannot do its part skips the test.
 */
static struct Marks {
	bool failed, skipped;
} * marks;

/* Determined before the tests run, because some of them change their user. */
static const bool as_root = !geteuid();

static void send_line(char kind, const std::string &text)
{
	std::string line = kind + text + '\n';

	if (write(to_parent, line.data(), line.size()) < 0)
		_exit(1);
}

[[noreturn]] static void end_test(char verdict)
{
	send_line(marks->failed ? 'F' : marks->skipped ? 'S' : verdict, "");
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
	send_line('#', format_text(format, args));
	va_end(args);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	send_line('#', format_text(format, args));
	va_end(args);
	marks->failed = true;
	end_test('F');
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	send_line('#', format_text(format, args));
	va_end(args);
	marks->skipped = true;
	end_test('S');
}

/* The part of a long @text where it begins to differ from @other. */
static std::string excerpt(const std::string &text, const std::string &other)
{
	constexpr size_t MOST = 200, BEFORE = 40;

	if (text.size() <= MOST)
		return text;

	const size_t same =
		std::mismatch(text.begin(), text.end(), other.begin(), other.end()).first -
		text.begin();
	const size_t from = same > BEFORE ? same - BEFORE : 0;

	return (from ? "..." : "") + text.substr(from, MOST) +
	       (from + MOST < text.size() ? "..." : "");
}

void expected(const std::string &want, const std::string &got, const char *what, const char *file,
	      int line)
{
	marks->failed = true;
	send_line('#', "expected " + excerpt(want, got) + ", got " + excerpt(got, want) + ": " +
			       what + " (" + file + ":" + std::to_string(line) + ")");
}

void expected_quantity(const char *how, const std::string &want, const char *things,
		       const std::string &got, const char *file, int line)
{
	marks->failed = true;
	send_line('#', "expected " + (how + quantity(want, things)) + ", got " + got + " (" + file +
			       ":" + std::to_string(line) + ")");
}

void report_met(uint64_t times, uint64_t least)
{
	send_line('M', std::to_string(times) + " " + std::to_string(least));
}

std::string hex_text(uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%#llx", static_cast<unsigned long long>(value));
	return text;
}

void setup_failed(const char *what, int err)
{
	const std::string failure = std::string(what) + ": " + errno_name(err);
	const char *text = failure.c_str();

	if (to_parent < 0) {
		printf("Bail out! %s\n", text);
		exit(1);
	}
	if ((err == EPERM || err == EACCES) && !as_root)
		skip("%s: this test requires root", text);
	if (err == EPERM && kernel_lockdown() == "confidentiality")
		skip("%s: kernel lockdown refuses it", text);
	if (err == ENOSYS)
		skip("%s: the kernel has no such system call", text);
	fail("%s", text);
}

void unavailable(const char *reason)
{
	skip("%s", reason);
}

[[noreturn]] static void child_main(const Test &test, int pipe)
{
	to_parent = pipe;
	marks = &shared_with_children<Marks>();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	/* Only the parent may write KTAP. */
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	test.run();
	end_test('P');
}

/* The functions below run in the parent. */

/*
 * Returns what the test and its children have written until the test exits or its time is up. The
 * test's children may outlive it and keep the pipe open, so waiting for the end of the pipe is not
 * enough.
 */
static std::string read_report(int pipe, int pidfd, int seconds, bool *in_time)
{
	pollfd fds[] = { { pipe, POLLIN, 0 }, { pidfd, POLLIN, 0 } };
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

		/* Read before checking for the exit, so that no line of the test is missed. */
		ssize_t n = read(pipe, buffer, sizeof(buffer));

		if (n > 0)
			text.append(buffer, n);
		else if (fds[1].revents)
			return text;
		else if (n == 0)
			fds[0].fd = -1;
	}
}

/* Waits for poll() to report @events on @fd. Returns false if it does not. */
static bool reports(int fd, short events)
{
	constexpr int MILLISECONDS = 5000;
	pollfd wanted = { fd, events, 0 };

	return poll(&wanted, 1, MILLISECONDS) > 0;
}

Outcome run_test(const Test &test)
{
	Outcome outcome;
	Pipe verdict;

	fflush(stdout);
	const double begun = seconds_now();
	pid_t pid = fork();

	if (pid < 0)
		setup_failed("fork", errno);
	if (!pid)
		child_main(test, verdict.in.get());
	verdict.in.close();
	fcntl(verdict.out.get(), F_SETFL, O_NONBLOCK);

	Fd pidfd(syscall(SYS_pidfd_open, pid, 0));
	bool in_time;
	std::string text = read_report(verdict.out.get(), pidfd.get(), test.seconds, &in_time);
	int status = 0;

	/* Kill the leader by its own id first: it may not have reached setsid() yet. */
	if (!in_time)
		kill(pid, SIGKILL);
	kill(-pid, SIGKILL);
	/* A task in a deadlock cannot be killed. */
	const bool ended = reports(pidfd.get(), POLLIN) && waitpid(pid, &status, WNOHANG) == pid;
	/*
	 * Wait for the end of its children and of the guard of a sysctl as well, which have the
	 * pipe open: the next test needs their breakpoints, and the old value.
	 */
	reports(verdict.out.get(), 0);
	outcome.seconds = seconds_now() - begun;

	for (size_t at = 0, next; (next = text.find('\n', at)) != text.npos; at = next + 1) {
		Outcome::Met met;

		if (text[at] == '#')
			outcome.lines.push_back(text.substr(at + 1, next - at - 1));
		else if (sscanf(&text[at], "M%" SCNu64 " %" SCNu64, &met.times, &met.least) == 2)
			outcome.met = met;
		else
			outcome.verdict = text[at];
	}
	if (!in_time)
		outcome.lines.push_back("expected a verdict within " +
					std::to_string(test.seconds) + " s, got none");
	else if (!ended)
		outcome.lines.push_back("expected the test to end after SIGKILL, but it does not");
	else if (WIFSIGNALED(status) || !outcome.verdict)
		outcome.lines.push_back("expected a verdict, got " + status_text(status));
	else
		return outcome;
	outcome.verdict = 'F';
	return outcome;
}
