/* SPDX-License-Identifier: GPL-2.0 */
/* What more than one of the uses needs: the programs of uses.bpf.c, and their event. */
#pragma once

#include <sys/mman.h>

#include "harness/test.h"
#include "lib/program.h"

#include <uses.skel.h>

using Uses = Loaded<uses>;

/* The globals of such programs as a process sees them that has the map alone. */
class LentGlobals {
public:
	/* There is none, and errno, if it cannot be mapped. */
	explicit LentGlobals(int map_fd)
		: at_(mmap(nullptr, sizeof(uses::uses__bss), PROT_READ | PROT_WRITE, MAP_SHARED,
			   map_fd, 0))
	{
	}
	~LentGlobals()
	{
		if (valid())
			munmap(at_, sizeof(uses::uses__bss));
	}
	LentGlobals(const LentGlobals &) = delete;

	bool valid() const { return at_ != MAP_FAILED; }
	volatile auto *get() const { return static_cast<volatile uses::uses__bss *>(at_); }

private:
	void *at_;
};

/*
 * The event of @attr in the calling thread and in every thread that it and they create from now
 * on; threads that exist already are not reached. One descriptor enables, disables, moves and
 * filters them all. An accepted hit is a SIGTRAP in the thread that hit, before its next
 * instruction, with si_code TRAP_PERF.
 */
inline Event event_in_all_threads(const perf_event_attr &attr)
{
	perf_event_attr all = with_sigtrap(inherited(attr));

	all.inherit_thread = 1; /* but not in forked processes */
	return Event(all);
}
