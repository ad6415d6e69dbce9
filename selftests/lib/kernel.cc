// SPDX-License-Identifier: GPL-2.0
#include "lib/kernel.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "lib/fd.h"
#include "lib/mount.h"

bool kernel_before(int major, int minor)
{
	utsname kernel;
	int is_major = 0, is_minor = 0;

	uname(&kernel);
	sscanf(kernel.release, "%d.%d", &is_major, &is_minor);
	return is_major < major || (is_major == major && is_minor < minor);
}

bool kernel_is_realtime()
{
	utsname kernel;

	return !uname(&kernel) && strstr(kernel.version, "PREEMPT_RT");
}

std::string kernel_lockdown()
{
	static constexpr char file[] = "/sys/kernel/security/lockdown";
	std::string level;

	/* Mount securityfs for this test if it is not mounted. */
	if (access(file, F_OK))
		mount_privately("securityfs", "/sys/kernel/security");
	for (std::ifstream levels(file); levels >> level;)
		if (level.front() == '[' && level != "[none]")
			return level.substr(1, level.size() - 2);
	return "";
}

std::vector<uint64_t> kernel_addresses(const std::vector<std::string> &names)
{
	std::ifstream symbols("/proc/kallsyms");
	std::string type, name;
	std::vector<uint64_t> found;

	for (uint64_t address; symbols >> std::hex >> address >> type >> name;
	     std::getline(symbols, type))
		if (address && std::find(names.begin(), names.end(), name) != names.end())
			found.push_back(address);
	return found;
}

uint64_t kernel_address_of(const std::string &function)
{
	auto found = kernel_addresses({ function });

	return found.empty() ? 0 : found.front();
}

void write_kernel_log(const std::string &line)
{
	const Fd kmsg(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));
	const std::string text = line + '\n';

	if (kmsg.valid() && write(kmsg.get(), text.data(), text.size()) < 0)
		return; /* the line is not essential */
}
