// SPDX-License-Identifier: GPL-2.0
#include "lib/event.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "lib/cpus.h"
#include "lib/fail.h"
#include "lib/kernel.h"
#include "lib/mount.h"

perf_event_attr breakpoint(Access access, const volatile void *addr, size_t len)
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_BREAKPOINT;
	attr.size = sizeof(attr);
	attr.bp_type = static_cast<uint32_t>(access);
	attr.bp_addr = reinterpret_cast<uintptr_t>(addr);
	attr.bp_len = len;
	attr.sample_period = 1;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	attr.disabled = 1;
	return attr;
}

perf_event_attr inherited(perf_event_attr attr)
{
	attr.inherit = 1;
	return attr;
}

perf_event_attr with_sigtrap(perf_event_attr attr, bool on)
{
	attr.sigtrap = attr.remove_on_exec = on;
	return attr;
}

perf_event_attr software(uint64_t config, uint64_t period)
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_SOFTWARE;
	attr.size = sizeof(attr);
	attr.config = config;
	attr.sample_period = period;
	attr.disabled = 1;
	return attr;
}

uint64_t id_of_tracepoint(const char *name)
{
	static constexpr char tracefs[] = "/sys/kernel/tracing";
	const std::string events = tracefs + std::string("/events/");
	uint64_t id;

	/* Mount it for the calling test if it is not mounted. */
	if (access(events.c_str(), F_OK))
		mount_privately("tracefs", tracefs);
	if (!(std::ifstream(events + name + "/id") >> id))
		unavailable(kernel_lockdown() == "confidentiality"
				    ? "kernel lockdown refuses tracefs"
			    : access(events.c_str(), F_OK)
				    ? "tracefs cannot be mounted"
				    : (std::string("no tracepoint ") + name).c_str());
	return id;
}

Fd open_event(const perf_event_attr &attr, pid_t pid, int cpu, int group)
{
	return Fd(syscall(SYS_perf_event_open, &attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC));
}

/* The 64 one-bit fields of attr that follow read_format. */
static uint64_t flags_of(const perf_event_attr &attr)
{
	uint64_t flags;

	memcpy(&flags, &attr.read_format + 1, sizeof(flags));
	return flags;
}

static void set_flags(perf_event_attr &attr, uint64_t flags)
{
	memcpy(&attr.read_format + 1, &flags, sizeof(flags));
}

static constexpr uint64_t DEFER = 3ull << 38; /* defer_callchain, defer_output */

perf_event_attr with_deferred_callchain(perf_event_attr attr)
{
	set_flags(attr, flags_of(attr) | DEFER);
	attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
	attr.exclude_callchain_kernel = 1;
	return attr;
}

/*
 * Attributes that older kernels refuse, and how to set each in a plain event. A kernel from version
 * major.minor on must not refuse the attribute. An attribute that also depends on the architecture
 * has no version.
 */
static constexpr struct NewerAttribute {
	bool (*is_set)(const perf_event_attr &attr);
	void (*set)(perf_event_attr &attr);
	const char *reason;
	int major, minor;
} newer_attributes[] = {
	{ [](auto &attr) -> bool { return attr.sigtrap; },
	  [](auto &attr) { attr = with_sigtrap(attr); },
	  "the kernel has no attr.sigtrap (it came with 5.13)", 5, 13 },
	{ [](auto &attr) -> bool { return attr.remove_on_exec; },
	  [](auto &attr) { attr.remove_on_exec = 1; },
	  "the kernel has no attr.remove_on_exec (it came with 5.13)", 5, 13 },
	{ [](auto &attr) -> bool { return attr.inherit_thread; },
	  [](auto &attr) { attr.inherit = attr.inherit_thread = 1; },
	  "the kernel has no attr.inherit_thread (it came with 5.13)", 5, 13 },
	{ [](auto &attr) -> bool { return flags_of(attr) & DEFER; },
	  [](auto &attr) { set_flags(attr, flags_of(attr) | DEFER); },
	  "the kernel has no attr.defer_callchain (it came after 6.18)", 0, 0 },
	{ [](auto &attr) -> bool { return attr.read_format & PERF_FORMAT_LOST; },
	  [](auto &attr) { attr.read_format = PERF_FORMAT_LOST; },
	  "the kernel has no PERF_FORMAT_LOST (it came with 6.0)", 6, 0 },
};

/*
 * Whether the kernel refuses the attribute in a dummy event, too. If it does not, it has refused
 * the test's event for another reason.
 */
static bool kernel_lacks(const NewerAttribute &feature)
{
	perf_event_attr attr = software(PERF_COUNT_SW_DUMMY);

	if (feature.major && !kernel_before(feature.major, feature.minor))
		return false;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	if (!open_event(attr).valid())
		return false;
	feature.set(attr);
	return !open_event(attr).valid() && errno == EINVAL;
}

bool has_sigtrap()
{
	return !kernel_lacks(newer_attributes[0]);
}

Event::Event(const perf_event_attr &attr, pid_t pid, int cpu, const Event *leader)
	: fd_(open_event(attr, pid, cpu, leader ? leader->fd() : -1))
	, task_(pid ?: gettid())
{
	if (fd_.valid())
		return;

	int err = errno;
	bool absent = err == ENOENT || err == EOPNOTSUPP || err == ENODEV;

	if (attr.type == PERF_TYPE_BREAKPOINT && absent)
		unavailable("no hardware breakpoint of this kind");
	if (attr.type == PERF_TYPE_HARDWARE && absent)
		unavailable("no hardware counter of this kind");
	/* E2BIG: a field that the kernel does not know is not 0. */
	for (auto &feature : newer_attributes)
		if ((err == EINVAL || err == E2BIG) && feature.is_set(attr) &&
		    kernel_lacks(feature))
			unavailable(feature.reason);
	setup_failed("perf_event_open", err);
}

void Event::enable()
{
	if (ioctl(fd(), PERF_EVENT_IOC_ENABLE, 0))
		setup_failed("PERF_EVENT_IOC_ENABLE", errno);
}

void Event::disable()
{
	if (ioctl(fd(), PERF_EVENT_IOC_DISABLE, 0))
		setup_failed("PERF_EVENT_IOC_DISABLE", errno);
}

int Event::refresh(int n)
{
	return ioctl(fd(), PERF_EVENT_IOC_REFRESH, n) ? errno : 0;
}

void Event::must_refresh(int n)
{
	if (int err = refresh(n))
		setup_failed("PERF_EVENT_IOC_REFRESH", err);
}

int Event::attach(int prog_fd) const
{
	return ioctl(fd(), PERF_EVENT_IOC_SET_BPF, prog_fd) ? errno : 0;
}

void Event::must_attach(int prog_fd) const
{
	if (int err = attach(prog_fd))
		setup_failed("PERF_EVENT_IOC_SET_BPF", err);
}

void Event::modify(perf_event_attr attr)
{
	if (ioctl(fd(), PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr))
		setup_failed("PERF_EVENT_IOC_MODIFY_ATTRIBUTES", errno);
}

uint64_t Event::count() const
{
	uint64_t value = 0;

	if (read(fd(), &value, sizeof(value)) != sizeof(value))
		setup_failed("read of the event's count", errno);
	return value;
}

void Event::set_period(uint64_t period)
{
	if (ioctl(fd(), PERF_EVENT_IOC_PERIOD, &period))
		setup_failed("PERF_EVENT_IOC_PERIOD", errno);
}

void Event::write_to(const Event &other)
{
	if (ioctl(fd(), PERF_EVENT_IOC_SET_OUTPUT, other.fd()))
		setup_failed("PERF_EVENT_IOC_SET_OUTPUT", errno);
}

std::vector<uint64_t> Event::read_words() const
{
	uint64_t words[64];
	ssize_t bytes = read(fd(), words, sizeof(words));

	if (bytes < 0)
		setup_failed("read of the event", errno);
	return { words, words + bytes / sizeof(words[0]) };
}

uint64_t Event::id() const
{
	uint64_t id = 0;

	if (ioctl(fd(), PERF_EVENT_IOC_ID, &id))
		setup_failed("PERF_EVENT_IOC_ID", errno);
	return id;
}

void Event::set_async()
{
	if (task_ >= 0)
		pin_for_signals(task_);
	if (fcntl(fd(), F_SETFL, O_RDONLY | O_NONBLOCK | O_ASYNC))
		setup_failed("F_SETFL O_ASYNC", errno);
}

void Event::async()
{
	if (fcntl(fd(), F_SETOWN, getpid()))
		setup_failed("F_SETOWN", errno);
	set_async();
}

void Event::async(int sig, pid_t tid)
{
	async(sig, F_OWNER_TID, tid);
}

void Event::async(int sig, int owner_type, pid_t owner)
{
	struct f_owner_ex ex = { static_cast<__pid_type>(owner_type), owner };

	if (fcntl(fd(), F_SETOWN_EX, &ex))
		setup_failed("F_SETOWN_EX", errno);
	if (fcntl(fd(), F_SETSIG, sig))
		setup_failed("F_SETSIG", errno);
	set_async();
}
