// SPDX-License-Identifier: GPL-2.0
#include "lib/rights.h"

#include <bpf/bpf.h>
#include <grp.h>
#include <linux/bpf.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "lib/child.h"
#include "lib/event.h"
#include "lib/fail.h"
#include "lib/hit.h"
#include "lib/kernel.h"
#include "lib/program.h"

void need_root()
{
	if (geteuid())
		setup_failed("setresuid", EPERM);
}

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
	/* The change of user clears this. Processes of @user must be able to monitor this one. */
	prctl(PR_SET_DUMPABLE, 1);
	/* The change of user clears this, too. Child sets it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* perf_event_open() and bpf() require capabilities in this one, see user_namespaces(7). */
static bool in_first_user_namespace()
{
	static constexpr char first[] = "user:[4026531837]"; /* include/linux/proc_ns.h */
	char name[sizeof(first)] = "";

	return readlink("/proc/self/ns/user", name, sizeof(name) - 1) < 0 || !strcmp(name, first);
}

static bool has(uint64_t capabilities)
{
	__user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	__user_cap_data_struct data[2] = {};

	syscall(SYS_capget, &header, data);
	return ((uint64_t(data[1].effective) << 32 | data[0].effective) & capabilities) ==
		       capabilities &&
	       in_first_user_namespace();
}

static std::string named(const char *capabilities)
{
	return std::string(capabilities) +
	       (in_first_user_namespace() ? "" : " in the initial user namespace");
}

static bool refused(int err)
{
	return err == EACCES || err == EPERM || err == ENOSYS;
}

/* Names what must permit @call, which failed with @err although the capabilities suffice. */
static std::string permission(const char *call, int err)
{
	const bool filtered =
		status_field("/proc/self", "Seccomp") == std::to_string(SECCOMP_MODE_FILTER);

	return (err == ENOSYS || filtered ? "a seccomp filter that allows "
					  : "a security module that allows ") +
	       std::string(call);
}

/* perf_event_open(2): upstream kernels allow all users to open breakpoints on their own tasks. */
static std::string missing_to_open()
{
	/* perf_event_open(2): the file exists if and only if the kernel has the system call. */
	static constexpr char paranoid[] = "/proc/sys/kernel/perf_event_paranoid";
	int level = 0;

	if (open_event(breakpoint(hit)).valid() || !refused(errno))
		return "";

	const int err = errno;

	std::ifstream(paranoid) >> level;
	if (err == ENOSYS && access(paranoid, F_OK))
		return "a kernel with perf events (CONFIG_PERF_EVENTS)";
	if (err != EACCES || level <= 2 || has(ADMIN))
		return permission("perf_event_open()", err);
	return "kernel.perf_event_paranoid of 2 or less (it is " + std::to_string(level) +
	       "), or " + named("CAP_SYS_ADMIN");
}

/* bpf(2): loads a program and creates a map. RLIMIT_MEMLOCK limits both before 5.11. */
static std::string missing_to_load()
{
	LIBBPF_OPTS(bpf_map_create_opts, mappable, .map_flags = BPF_F_MMAPABLE);
	if (try_least(0).valid() &&
	    Fd(bpf_map_create(BPF_MAP_TYPE_ARRAY, "rights", 4, 8, 1, &mappable)).valid())
		return "";

	const int err = errno;

	/* Rule C11 is about kernels without bpf(2): only tests that need it are skipped. */
	if (!refused(err) ||
	    (err == ENOSYS && access("/proc/sys/kernel/unprivileged_bpf_disabled", F_OK)))
		return "";
	if (err != ENOSYS && !has(ADMIN) && !has(BPF | PERFMON))
		return named(has(BPF)	    ? "CAP_PERFMON"
			     : has(PERFMON) ? "CAP_BPF"
					    : "CAP_BPF and CAP_PERFMON");
	if (err != ENOSYS && kernel_before(5, 11))
		return "a larger RLIMIT_MEMLOCK (ulimit -l)";
	return permission("bpf()", err);
}

std::string missing_rights()
{
	const std::string open = missing_to_open(), load = missing_to_load();

	return open + (open.empty() || load.empty() ? "" : "; ") + load;
}
