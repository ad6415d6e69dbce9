/* SPDX-License-Identifier: GPL-2.0 */
/* Perf events: the attributes for perf_event_open(2), and the descriptor that it returns. */
#pragma once

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lib/arch.h"
#include "lib/fd.h"

#ifndef PERF_ATTR_SIZE_VER7
#error "linux/perf_event.h is too old: attr.sigtrap needs the headers of Linux 5.13 or later"
#endif

enum class Access : uint32_t {
	EXECUTE = HW_BREAKPOINT_X,
	WRITE = HW_BREAKPOINT_W,
	READ_WRITE = HW_BREAKPOINT_RW, /* x86 has no breakpoint on reads alone */
};

/*
 * A disabled breakpoint that overflows on every hit (sample_period 1), has IP and ADDR in its
 * samples, and wakes up poll(2) at every sample (wakeup_events 1). @len is 1, 2, 4 or 8 bytes.
 *
 * exclude_kernel is set because a program runs in NMI context after a hit in kernel mode, and would
 * hit again if it accessed the watched word.
 */
perf_event_attr breakpoint(Access access, const volatile void *addr, size_t len);

/* A breakpoint on the first instruction, where the arguments are still in their registers. */
template <typename Result, typename... Arguments>
perf_event_attr breakpoint(Result (*function)(Arguments...))
{
	return breakpoint(Access::EXECUTE, reinterpret_cast<const void *>(function),
			  EXECUTE_LENGTH);
}

/* Sets attr.inherit: threads and children that the task creates later have the event, too. */
perf_event_attr inherited(perf_event_attr attr);

/*
 * Each overflow sends SIGTRAP to the task that hit, unless @on is false. The kernel requires
 * attr.remove_on_exec with attr.sigtrap: after exec() the signal would terminate the new program.
 */
perf_event_attr with_sigtrap(perf_event_attr attr, bool on = true);

/*
 * A disabled software event, PERF_COUNT_SW_*, that overflows once per @period, which is in
 * nanoseconds for the clocks. If @period is 0, the event only counts.
 */
perf_event_attr software(uint64_t config, uint64_t period = 0);

/* attr.config of a tracepoint such as "syscalls/sys_enter_getppid". May call unavailable(). */
uint64_t id_of_tracepoint(const char *name);

/*
 * The kernel unwinds the user callchain on its way back to user mode and writes it as a separate
 * record. attr.defer_callchain and attr.defer_output are newer than the headers here.
 */
perf_event_attr with_deferred_callchain(perf_event_attr attr);

/* Whether the kernel has attr.sigtrap, which came with 5.13. */
bool has_sigtrap();

/* perf_event_open(2) with PERF_FLAG_FD_CLOEXEC. If it fails, the Fd is invalid and errno is set. */
Fd open_event(const perf_event_attr &attr, pid_t pid = 0, int cpu = -1, int group = -1);

class Event {
public:
	/*
	 * perf_event_open(2), in the group of @leader if there is one. Calls unavailable() if the
	 * kernel or the machine lacks the event: a breakpoint or hardware counter fails with
	 * ENOENT, EOPNOTSUPP or ENODEV; or the event fails with EINVAL or E2BIG, and the kernel
	 * refuses one of its attributes in a dummy event, too.
	 */
	explicit Event(const perf_event_attr &attr, pid_t pid = 0, int cpu = -1,
		       const Event *leader = nullptr);

	/* An event that another process has opened. */
	explicit Event(Fd fd)
		: fd_(std::move(fd))
	{
	}

	int fd() const { return fd_.get(); }
	void close() { fd_.close(); }
	void enable();
	template <typename Program> void enable(const Program &program)
	{
		must_attach(program);
		enable();
	}
	void disable();

	/*
	 * PERF_EVENT_IOC_REFRESH: adds @n to the limit of overflows and enables the event. The
	 * overflow that uses up the limit disables the event and sends POLL_HUP to its fasync
	 * owner. Returns 0 or an errno: EINVAL with attr.inherit or without a sample period.
	 */
	int refresh(int n);
	void must_refresh(int n);

	/*
	 * PERF_EVENT_IOC_SET_BPF: attaches a program until the event is closed. Returns 0 or an
	 * errno: EEXIST if the event already has a program, EINVAL if the program's type is wrong.
	 * A Program is any class that has a prog_fd().
	 */
	int attach(int prog_fd) const;
	void must_attach(int prog_fd) const;
	template <typename Program> int attach(const Program &program) const
	{
		return attach(program.prog_fd());
	}
	template <typename Program> void must_attach(const Program &program) const
	{
		must_attach(program.prog_fd());
	}

	/*
	 * PERF_EVENT_IOC_MODIFY_ATTRIBUTES: moves a breakpoint, and enables or disables it by
	 * attr.disabled.
	 */
	void modify(perf_event_attr attr);

	/* PERF_EVENT_IOC_PERIOD */
	void set_period(uint64_t period);

	/* PERF_EVENT_IOC_SET_OUTPUT: redirects the records of this event to the ring of @other. */
	void write_to(const Event &other);

	/* Hits of this event and of all events inherited from it, even those of exited tasks. */
	uint64_t count() const;
	/* The words that read(2) returns, in the layout of attr.read_format. */
	std::vector<uint64_t> read_words() const;
	/* PERF_EVENT_IOC_ID */
	uint64_t id() const;

	/* O_ASYNC: every overflow sends SIGIO to the process. */
	void async();
	/* Every overflow sends @sig, with si_code and si_fd, to a thread: F_SETSIG, F_OWNER_TID. */
	void async(int sig, pid_t tid);
	/* @owner_type is F_OWNER_TID, F_OWNER_PID or F_OWNER_PGRP. */
	void async(int sig, int owner_type, pid_t owner);

private:
	void set_async();

	Fd fd_;
	pid_t task_ = -1; /* the monitored task, or -1 if it is unknown or all tasks on a CPU */
};
