// SPDX-License-Identifier: GPL-2.0
#include "lib/rights.h"

#include <bpf/bpf.h>
#include <grp.h>
#include <linux/bpf.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "lib/event.h"
#include "lib/fail.h"
#include "lib/hit.h"
#include "lib/kernel.h"
#include "lib/program.h"

void become(uid_t user, uint64_t capabilities)
{
	__user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	__user_cap_data_struct data[2] = {};

	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = capabilities >> 32 * i;
	prctl(PR_SET_KEEPCAPS, 1);
	if (setgroups(0, nullptr) || setresgid(user, user, user) || setresuid(user, user, user))
		setup_failed("setresuid", errno);
	if (syscall(SYS_capset, &header, data))
		setup_failed("capset", errno);
	/* For others of the same user, as if it had been started by them. */
	prctl(PR_SET_DUMPABLE, 1);
	/* Which a change of user clears: see Child. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static bool has(uint64_t capabilities)
{
	__user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	__user_cap_data_struct data[2] = {};

	syscall(SYS_capget, &header, data);
	return ((uint64_t(data[1].effective) << 32 | data[0].effective) & capabilities) ==
	       capabilities;
}

static bool refused(int err)
{
	return err == EACCES || err == EPERM;
}

/* perf_event_open(2): upstream refuses nobody a breakpoint of its own. */
static std::string missing_to_open()
{
	int level = 0;

	if (open_event(breakpoint(hit)).valid() || !refused(errno))
		return "";
	std::ifstream("/proc/sys/kernel/perf_event_paranoid") >> level;
	if (level <= 2)
		return "no seccomp filter or security module that refuses perf_event_open()";
	return "kernel.perf_event_paranoid of 2 or less (it is " + std::to_string(level) +
	       "), or CAP_SYS_ADMIN";
}

/* bpf(2): a program and a map, which before 5.11 are locked memory. */
static std::string missing_to_load()
{
	LIBBPF_OPTS(bpf_map_create_opts, mappable, .map_flags = BPF_F_MMAPABLE);
	if (try_least(0).valid() &&
	    Fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "rights", 4, 8, 1, &mappable)).valid())
		return "";
	if (!refused(errno))
		return "";
	if (!has(ADMIN) && !has(BPF | PERFMON))
		return has(BPF)	      ? "CAP_PERFMON"
		       : has(PERFMON) ? "CAP_BPF"
				      : "CAP_BPF and CAP_PERFMON";
	if (kernel_before(5, 11))
		return "a larger RLIMIT_MEMLOCK (ulimit -l)";
	return "no seccomp filter or security module that refuses bpf()";
}

std::string missing_rights()
{
	const std::string open = missing_to_open(), load = missing_to_load();

	return open + (open.empty() || load.empty() ? "" : "; ") + load;
}
