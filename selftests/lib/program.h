/* SPDX-License-Identifier: GPL-2.0 */
/*
 * BPF programs. They come in skeletons, structs that bpftool makes of an object file, of which one
 * program is loaded: a kernel that lacks what another one needs does not matter then.
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

/* Before an object is opened. */
void set_up_libbpf();

/* Of all in @object only @name is to be loaded; it is given back. */
bpf_program *choose_program(bpf_object *object, const char *name);

/*
 * The least that a perf_event program can be, loaded fast: it returns @verdict. If the kernel does
 * not take it, try_least() gives none back, and errno; load_least() ends the process.
 */
Fd try_least(int32_t verdict);
Fd load_least(int32_t verdict);

/* BPF_OBJ_GET_INFO_BY_FD. run_cnt grows while somebody holds what bpf_enable_stats() returns. */
bpf_prog_info info_of_program(int prog_fd);
/* Whether there is a program of that id: to be asked for, or in the list of all. */
bool program_is_there(uint32_t id);
/* Waits for it to go, by way of RCU and of a work queue; whether it has gone in 10 s. */
bool program_goes(uint32_t id);
/* Its recursion_misses; nothing before 5.12, which does not count them. */
std::optional<uint64_t> misses_of_program(int prog_fd);

/* Whether create_link() can: before 5.15 there is Event::attach() alone. */
bool can_link(int prog_fd);

/*
 * BPF_LINK_CREATE: detaches when the Fd closes. create_link() gives none back, and errno, for an
 * event that has a program; must_link() ends the process.
 */
Fd create_link(int prog_fd, const Event &event, uint64_t cookie = 0);
Fd must_link(int prog_fd, const Event &event, uint64_t cookie = 0);

template <typename Skeleton> class Loaded {
public:
	/*
	 * @prepare(skeleton) says what else there is to be done before the load; @refused is told
	 * the errno of a load that fails, before setup_failed() is.
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
	 * One memory-mapped array: a program is given its condition, and asked what it saw, without
	 * a system call. Volatile, for it runs behind the compiler's back.
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
