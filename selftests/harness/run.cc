// SPDX-License-Identifier: GPL-2.0
#include "harness/run.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "lib/child.h"
#include "lib/clock.h"
#include "lib/fail.h"
#include "lib/fd.h"
#include "lib/kernel.h"

/*
 * In the child. Each line for the parent starts with its kind: '#' a diagnostic line, and as the
 * last one 'P', 'F' or 'S', the verdict.
 */
static int to_parent = -1;
/*
 * In memory that the test's own children share: their expectations count, too, and what one of
 * them cannot do the test has not done.
 */
static struct Marks {
	bool failed, skipped;
} * marks;

/* Whoever runs the suite, not whom a test makes of itself. */
static const bool as_root = !geteuid();

static void say(char kind, const std::string &text)
{
	std::string line = kind + text + '\n';

	if (write(to_parent, line.data(), line.size()) < 0)
		_exit(1);
}

[[noreturn]] static void end_test(char verdict)
{
	say(marks->failed ? 'F' : marks->skipped ? 'S' : verdict, "");
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
	marks->failed = true;
	end_test('F');
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say('#', format_text(format, args));
	va_end(args);
	marks->skipped = true;
	end_test('S');
}

void expected(const std::string &want, const std::string &got, const char *what, const char *file,
	      int line)
{
	marks->failed = true;
	say('#', "expected " + want + ", got " + got + ": " + what + " (" + file + ":" +
			 std::to_string(line) + ")");
}

void setup_failed(const char *what, int err)
{
	if (to_parent < 0) {
		printf("Bail out! %s: %s\n", what, strerror(err));
		exit(1);
	}
	if ((err == EPERM || err == EACCES) && !as_root)
		skip("%s: %s: this test takes root", what, strerror(err));
	if (err == EPERM && kernel_lockdown() == "confidentiality")
		skip("%s: %s: kernel lockdown refuses it", what, strerror(err));
	if (err == ENOSYS)
		skip("%s: %s: the kernel has no such system call", what, strerror(err));
	fail("%s: %s", what, strerror(err));
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

/* In the parent. */

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

Outcome run_test(const Test &test)
{
	Outcome outcome;
	Pipe verdict(O_CLOEXEC | O_NONBLOCK);

	fflush(stdout);
	const double begun = seconds_now();
	pid_t pid = fork();

	if (pid < 0)
		setup_failed("fork", errno);
	if (!pid)
		child_main(test, verdict.in.get());
	verdict.in.close();

	bool in_time;
	std::string text = listen_to(verdict.out.get(), pid, test.seconds, &in_time);
	int status = 0;

	/* First the leader by its own id: it may not have reached setsid() yet. */
	if (!in_time)
		kill(pid, SIGKILL);
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	outcome.seconds = seconds_now() - begun;

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
