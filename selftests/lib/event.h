/* SPDX-License-Identifier: GPL-2.0 */
/* Perf events: what perf_event_open(2) is asked for, and the descriptor that it gives back. */
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
 * A disabled breakpoint that overflows on every hit (sample_period 1), whose samples hold IP and
 * ADDR, and which wakes its poller at every sample (wakeup_events 1).
 *
 * exclude_kernel, because a hit in kernel mode runs in NMI context and a program that touches the
 * watched word would hit again. @len is in bytes: 1, 2, 4 or 8.
 */
perf_event_attr breakpoint(Access access, const volatile void *addr, size_t len);

/* On the first instruction of @function, where its arguments still sit in their registers. */
template <typename Result, typename... Arguments>
perf_event_attr breakpoint(Result (*function)(Arguments...))
{
	return breakpoint(Access::EXECUTE, reinterpret_cast<const void *>(function),
			  EXECUTE_LENGTH);
}

/* The same, for all tasks that come from the one that opens it. */
perf_event_attr inherited(perf_event_attr attr);

/*
 * With a SIGTRAP at each overflow, to the task that hit; or as it is if not @on. The kernel wants
 * remove_on_exec with it, kernel/events/core.c: an exec'ed program would die of the signal.
 */
perf_event_attr with_sigtrap(perf_event_attr attr, bool on = true);

/*
 * A disabled software event, PERF_COUNT_SW_*, that overflows each @period, which for the clocks is
 * in nanoseconds; with 0 it counts and never overflows.
 */
perf_event_attr software(uint64_t config, uint64_t period = 0);

/* attr.config of a tracepoint, as "syscalls/sys_enter_getppid"; unavailable() where there is none. */
uint64_t id_of_tracepoint(const char *name);

/*
 * The callchain of user mode, unwound on the way back there and written as a record of its own:
 * attr.defer_callchain and attr.defer_output, which are newer than the headers here.
 */
perf_event_attr with_deferred_callchain(perf_event_attr attr);

/* Whether the kernel knows attr.sigtrap, which came with 5.13. */
bool has_sigtrap();

/* perf_event_open(2) with PERF_FLAG_FD_CLOEXEC: errno says why it is not valid. */
Fd open_event(const perf_event_attr &attr, pid_t pid = 0, int cpu = -1, int group = -1);

class Event {
public:
	/*
	 * perf_event_open(2), in the group of @leader if there is one. ENOENT, EOPNOTSUPP and
	 * ENODEV for a breakpoint or a hardware counter, and EINVAL or E2BIG for what the kernel
	 * refuses in a bare event too, mean that the kernel or machine lacks it: unavailable().
	 */
	explicit Event(const perf_event_attr &attr, pid_t pid = 0, int cpu = -1,
		       const Event *leader = nullptr);

	/* One that somebody else has opened. */
	explicit Event(Fd fd)
		: fd_(std::move(fd))
	{
	}

	int fd() const { return fd_.get(); }
	void close() { fd_.close(); }
	void enable();
	/* must_attach() before. */
	template <typename Program> void enable(const Program &program)
	{
		must_attach(program);
		enable();
	}
	void disable();

	/*
	 * PERF_EVENT_IOC_REFRESH: adds @n to the limit of overflows and enables. The event is
	 * disabled, with POLL_HUP to its fasync owner, by the overflow that uses up the limit.
	 * EINVAL with attr.inherit or without a sample period.
	 */
	int refresh(int n);
	void must_refresh(int n);

	/*
	 * PERF_EVENT_IOC_SET_BPF: until the event is closed. EEXIST with a program there already,
	 * EINVAL for a program of another type. A program is what has a prog_fd().
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
	 * PERF_EVENT_IOC_MODIFY_ATTRIBUTES: moves a breakpoint. attr.disabled says whether it is
	 * enabled afterwards.
	 */
	void modify(perf_event_attr attr);

	/* PERF_EVENT_IOC_PERIOD */
	void set_period(uint64_t period);

	/* PERF_EVENT_IOC_SET_OUTPUT: from now on into the ring of @other. */
	void write_to(const Event &other);

	/* Hits of this event and of its inherited children, those that have exited among them. */
	uint64_t count() const;
	/* All that read(2) says, laid out as attr.read_format has it. */
	std::vector<uint64_t> read_words() const;
	/* PERF_EVENT_IOC_ID */
	uint64_t id() const;

	/* O_ASYNC: SIGIO to the process, at every overflow. */
	void async();
	/* The same with F_SETSIG and F_OWNER_TID: @sig, with si_code and si_fd, to the thread. */
	void async(int sig, pid_t tid);
	/* To a thread, a process or a group: F_OWNER_TID, F_OWNER_PID, F_OWNER_PGRP. */
	void async(int sig, int owner_type, pid_t owner);

private:
	void set_async();

	Fd fd_;
	pid_t task_ = -1; /* whose hits it has, if it is known, and but one */
};
