/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by the examples: the programs of uses.bpf.c, and an event in all threads. */
#pragma once

#include <sys/mman.h>

#include "harness/test.h"
#include "lib/program.h"

#include <uses.skel.h>

using Uses = Loaded<uses>;

/* The programs' globals, in a process that has only the descriptor of their map. */
class BorrowedGlobals {
public:
	/* If the map cannot be mapped, valid() is false and errno is set. */
	explicit BorrowedGlobals(int map_fd)
		: at_(mmap(nullptr, sizeof(uses::uses__bss), PROT_READ | PROT_WRITE, MAP_SHARED,
			   map_fd, 0))
	{
	}
	~BorrowedGlobals()
	{
		if (valid())
			munmap(at_, sizeof(uses::uses__bss));
	}
	BorrowedGlobals(const BorrowedGlobals &) = delete;

	bool valid() const { return at_ != MAP_FAILED; }
	volatile auto *get() const { return static_cast<volatile uses::uses__bss *>(at_); }

private:
	void *at_;
};

/*
 * Opens the event in the calling thread. All threads that the thread creates later inherit it;
 * existing threads do not. One descriptor enables, disables, moves and filters the event in all of
 * them. An accepted hit raises SIGTRAP, with si_code TRAP_PERF, in the thread that hit, before its
 * next instruction.
 */
inline Event event_in_all_threads(const perf_event_attr &attr)
{
	perf_event_attr all = with_sigtrap(inherited(attr));

	all.inherit_thread = 1; /* not in forked processes */
	return Event(all);
}
