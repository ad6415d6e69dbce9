// SPDX-License-Identifier: GPL-2.0
#include "lib/child.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "lib/fail.h"

void *shared_with_children(size_t size)
{
	void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		setup_failed("mmap", errno);
	return at;
}

std::string file_of_own_folder(const std::string &name)
{
	char path[PATH_MAX];
	const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));

	if (length < 0)
		setup_failed("readlink /proc/self/exe", errno);

	const std::string_view self(path, length);

	return std::string(self.substr(0, self.rfind('/') + 1)) + name;
}

std::string status_field(const std::string &task, const std::string &name)
{
	std::ifstream status(task + "/status");

	for (std::string line; std::getline(status, line);)
		if (!line.compare(0, name.size() + 1, name + ":"))
			return line.substr(std::min(line.find_first_not_of(" \t", name.size() + 1),
						    line.size()));
	return "";
}

uint64_t wait_until_asleep(pid_t pid)
{
	const std::string task = "/proc/" + std::to_string(pid);
	const auto read_switches = [&] { return status_field(task, "voluntary_ctxt_switches"); };
	const auto asleep = [&] { return status_field(task, "State").starts_with('S'); };

	/* The state changes shortly before the switch is counted, so look twice. */
	for (;;) {
		const std::string switches = asleep() ? read_switches() : "";

		usleep(2000);
		if (!switches.empty() && asleep() && switches == read_switches())
			return std::stoull(switches);
		if (kill(pid, 0))
			setup_failed("kill", errno);
	}
}

pid_t Child::spawn()
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		setup_failed("fork", errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			setup_failed("waitpid", errno);
	return status;
}

std::string signal_name(int sig)
{
	if (const char *name = sigabbrev_np(sig))
		return std::string("SIG") + name;
	return "signal " + std::to_string(sig);
}

std::string status_text(int status)
{
	if (WIFEXITED(status))
		return "exit code " + std::to_string(WEXITSTATUS(status));
	if (WIFSTOPPED(status))
		return "stopped by " + signal_name(WSTOPSIG(status));
	return "killed by " + signal_name(WTERMSIG(status));
}

int Child::wait()
{
	const int status = wait_for(pid_);

	if (!WIFSTOPPED(status))
		pid_ = -1;
	return status;
}

Child::~Child()
{
	if (pid_ <= 0)
		return;
	kill(pid_, SIGKILL);
	while (pid_ > 0)
		wait();
}
