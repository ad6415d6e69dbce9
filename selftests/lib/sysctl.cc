// SPDX-License-Identifier: GPL-2.0
#include "lib/sysctl.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

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
	told_.out.close();
}

Sysctl::~Sysctl()
{
	set(old_);
	if (write(told_.in.get(), "", 1) == 1)
		waitpid(guard_, nullptr, 0);
}

bool Sysctl::set(int value)
{
	std::ofstream file(file_);

	file << value << std::flush;
	return file.good();
}

void Sysctl::guard()
{
	char byte;

	setsid();
	told_.in.close();
	if (!read(told_.out.get(), &byte, 1))
		set(old_);
	_exit(0);
}

SlowSampling::SlowSampling()
	: Sysctl("kernel/perf_event_max_sample_rate")
{
	if (!set(1))
		unavailable("no way to set kernel.perf_event_max_sample_rate");
}
