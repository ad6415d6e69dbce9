/* SPDX-License-Identifier: GPL-2.0 */
/* What more than one of the uses needs: the programs of uses.bpf.c, and two shorthands. */
#ifndef USES_H
#define USES_H

#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "lib/perf.h"

#include <uses.skel.h>

/* The program @wanted, loaded, and the globals. */
class Uses {
public:
	explicit Uses(const char *wanted)
	{
		bpf_program *program;

		libbpf_set_print(nullptr);
		skel_ = uses__open();
		if (!skel_)
			setup_failed("bpf object", errno);
		bpf_object__for_each_program (program, skel_->obj)
			bpf_program__set_autoload(program,
						  !strcmp(bpf_program__name(program), wanted));
		if (int err = uses__load(skel_))
			setup_failed("bpf() to load the program", -err);
	}
	~Uses()
	{
		uses__destroy(skel_);
	}
	Uses(const Uses &) = delete;

	uses *operator->() const
	{
		return skel_;
	}

	/*
	 * One memory-mapped array: a program is given its condition, and asked what it saw, without
	 * a system call. Volatile, for it runs behind the compiler's back.
	 */
	volatile auto *globals() const
	{
		return skel_->bss;
	}

private:
	uses *skel_;
};

/* From now on @program decides on the hits of @event, and of all that inherit from it. */
inline void attach(const Event &event, const bpf_program *program)
{
	if (ioctl(event.fd(), PERF_EVENT_IOC_SET_BPF, bpf_program__fd(program)))
		setup_failed("PERF_EVENT_IOC_SET_BPF", errno);
}

/* On the first instruction of @function, where its arguments still sit in their registers. */
template <typename Function> perf_event_attr entry_of(Function *function)
{
#ifdef __x86_64__
	constexpr size_t len = sizeof(long);
#else
	constexpr size_t len = 4;
#endif
	return breakpoint(Access::EXECUTE, reinterpret_cast<const void *>(function), len);
}

/*
 * The event of @attr in the calling thread and in every thread that it and they create from now
 * on; threads that exist already are not reached. One descriptor enables, disables, moves and
 * filters them all. An accepted hit is a SIGTRAP in the thread that hit, before its next
 * instruction, with si_code TRAP_PERF.
 */
inline Event event_in_all_threads(perf_event_attr attr)
{
	attr.inherit = 1;
	attr.sigtrap = 1;
	attr.remove_on_exec = 1; /* or an exec'ed program dies of SIGTRAP: sigtrap insists on it */
	attr.inherit_thread = 1; /* but not in forked processes */
	return Event(attr);
}

/* Handles @sig for as long as it lives. */
class Handler {
public:
	Handler(int sig, void (*handler)(int, siginfo_t *, void *))
		: sig_(sig)
	{
		struct sigaction action = {};

		action.sa_sigaction = handler;
		action.sa_flags = SA_SIGINFO | SA_RESTART;
		if (sigaction(sig, &action, &old_))
			setup_failed("sigaction", errno);
	}
	~Handler()
	{
		sigaction(sig_, &old_, nullptr);
	}
	Handler(const Handler &) = delete;

private:
	int sig_;
	struct sigaction old_;
};

#endif
