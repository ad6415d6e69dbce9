// SPDX-License-Identifier: GPL-2.0
#include "lib/sysctl.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "lib/fail.h"

Sysctl::Sysctl(const char *name)
	: file_(std::string("/proc/sys/") + name)
{
	if (!(std::ifstream(file_) >> old_) || !set(old_))
		unavailable(("no permission to read and set " + file_).c_str());
	guard_ = fork();
	if (guard_ < 0)
		setup_failed("fork", errno);
	if (!guard_)
		guard();
	ends_.there.close();

	char ready;

	if (read(ends_.here.get(), &ready, 1) != 1)
		setup_failed("fork of a process that restores a setting", errno);
}

Sysctl::~Sysctl()
{
	set(old_);
	if (write(ends_.here.get(), "", 1) == 1)
		waitpid(guard_, nullptr, 0);
}

bool Sysctl::set(int value)
{
	std::ofstream file(file_);

	file << value << std::flush;
	return file.good();
}

/*
 * An event, link or program lives as long as any process has a descriptor of it. Pipes and sockets
 * stay open: by one of them the harness waits for the guard, and by another the guard of an outer
 * Sysctl waits until this one has restored its value.
 */
static void close_events()
{
	std::vector<int> fds;

	for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
		fds.push_back(atoi(entry.path().filename().c_str()));
	for (int fd : fds) {
		struct stat status;

		if (!fstat(fd, &status) && !S_ISFIFO(status.st_mode) && !S_ISSOCK(status.st_mode))
			close(fd);
	}
}

void Sysctl::guard()
{
	char byte;

	setsid();
	ends_.here.close();
	close_events();
	if (write(ends_.there.get(), "", 1) == 1 && !read(ends_.there.get(), &byte, 1))
		set(old_);
	_exit(0);
}

static constexpr char max_sample_rate[] = "kernel/perf_event_max_sample_rate";

SlowSampling::SlowSampling()
	: Sysctl(max_sample_rate)
{
	if (!set(1))
		unavailable("kernel.perf_event_max_sample_rate cannot be set");
}

EnoughSampling::EnoughSampling(int rate)
{
	static constexpr char file[] = "/proc/sys/kernel/perf_event_max_sample_rate";
	char text[200];
	int limit = rate;

	std::ifstream(file) >> limit;
	if (limit >= rate || (!access(file, W_OK) && limit_.emplace(max_sample_rate).set(rate)))
		return;
	snprintf(text, sizeof(text),
		 "kernel.perf_event_max_sample_rate is %d, but the test needs %d; set it as root, "
		 "with kernel.perf_cpu_time_max_percent between 1 and 99",
		 limit, rate);
	unavailable(text);
}
