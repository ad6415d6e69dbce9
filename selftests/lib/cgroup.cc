// SPDX-License-Identifier: GPL-2.0
#include "lib/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "lib/cpus.h"
#include "lib/fail.h"
#include "lib/mount.h"

static constexpr char ROOT[] = "/sys/fs/cgroup";

Cgroup::Cgroup()
	: path_(ROOT + std::string("/perf_bpf_filter.") + std::to_string(getpid()))
{
	/* cgroup2 lacks the implicit controllers if no service manager has set it up. */
	static constexpr struct {
		const char *type, *options;
	} hierarchies[] = { { "cgroup2", nullptr }, { "cgroup", "perf_event" } };

	for (auto &h : hierarchies) {
		if (!mount_privately(h.type, ROOT, h.options) || mkdir(path_.c_str(), 0700))
			continue;
		dir_ = Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		if (open(software(PERF_COUNT_SW_DUMMY), usable_cpus().front()).valid())
			return;
		rmdir(path_.c_str());
	}
	unavailable("the kernel has no perf events for cgroups (CONFIG_CGROUP_PERF)");
}

Cgroup::~Cgroup()
{
	rmdir(path_.c_str());
}

Fd Cgroup::open(const perf_event_attr &attr, int cpu) const
{
	return Fd(syscall(SYS_perf_event_open, &attr, dir_.get(), cpu, -1,
			  PERF_FLAG_PID_CGROUP | PERF_FLAG_FD_CLOEXEC));
}

void Cgroup::add(pid_t pid) const
{
	std::ofstream procs(path_ + "/cgroup.procs");

	if (!(procs << pid << std::flush))
		setup_failed("write to cgroup.procs", errno);
}
