/* SPDX-License-Identifier: GPL-2.0 */
/*
 * BPF programs, in skeletons that bpftool generates from object files. Only one program of an
 * object is loaded, so that the kernel need not have the features that the other programs use.
 */
#pragma once

#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "lib/event.h"
#include "lib/fail.h"
#include "lib/fd.h"
#include "lib/signals.h"

/* Must be called before an object is opened. */
void set_up_libbpf();

/* Marks only the program @name of @object for loading, and returns it. */
bpf_program *choose_program(bpf_object *object, const char *name);

/*
 * The smallest perf_event program, which loads fast and returns @verdict. If loading fails,
 * try_least() returns an invalid Fd and sets errno, and load_least() calls setup_failed().
 */
Fd try_least(int32_t verdict);
Fd load_least(int32_t verdict);

/* BPF_OBJ_GET_INFO_BY_FD. run_cnt grows only while a descriptor of bpf_enable_stats() is open. */
bpf_prog_info info_of_program(int prog_fd);
/* Whether a program with this id exists: it can be opened, or is in the list of all ids. */
bool program_exists(uint32_t id);
/* Waits until the program is freed, by RCU and a work queue. Returns false after 10 s. */
bool wait_until_freed(uint32_t id);
/* The program's recursion_misses; no value before 5.12, which does not count them. */
std::optional<uint64_t> misses_of_program(int prog_fd);

/* Whether the kernel has links for perf events. Before 5.15 there is only Event::attach(). */
bool can_link(int prog_fd);

/*
 * BPF_LINK_CREATE: closing the Fd detaches the program. If the event has a program, create_link()
 * returns an invalid Fd and sets errno, and must_link() calls setup_failed().
 */
Fd create_link(int prog_fd, const Event &event, uint64_t cookie = 0);
Fd must_link(int prog_fd, const Event &event, uint64_t cookie = 0);

template <typename Skeleton> class Loaded {
public:
	/*
	 * Calls @prepare(skeleton) before the program is loaded, and @refused(errno) before
	 * setup_failed() if loading fails.
	 */
	template <typename Prepare>
	Loaded(const char *program, Prepare prepare, void (*refused)(int err) = nullptr)
		: skel_(open())
		, program_(choose_program(skel_->obj, program))
	{
		prepare(*skel_);

		/* A signal would interrupt the verifier. */
		const BlockedSignals all_blocked;
		const int err = -Skeleton::load(skel_);

		if (err && refused)
			refused(err);
		if (err)
			setup_failed("bpf() to load the program", err);
	}
	explicit Loaded(const char *program)
		: Loaded(program, [](Skeleton &) {})
	{
	}
	~Loaded() { Skeleton::destroy(skel_); }
	Loaded(const Loaded &) = delete;

	Skeleton *operator->() const { return skel_; }
	/*
	 * The program's globals in a memory-mapped array: they are read and written without system
	 * calls. Volatile, because the program changes them asynchronously.
	 */
	volatile auto *globals() const { return skel_->bss; }
	bpf_program *program() const { return program_; }
	int prog_fd() const { return bpf_program__fd(program_); }

private:
	static Skeleton *open()
	{
		set_up_libbpf();

		Skeleton *skel = Skeleton::open();

		if (!skel)
			setup_failed("bpf object", errno);
		return skel;
	}

	Skeleton *skel_;
	bpf_program *program_;
};
