/* SPDX-License-Identifier: GPL-2.0 */
/* The programs of stress.bpf.c. */
#pragma once

#include "bpf/stress.h"
#include "lib/program.h"

#include <stress.skel.h>

constexpr uint64_t COOKIE = 0xc00c1e0000000001;

class Decider {
public:
	/* Decides by accepts(), on the first argument or, with @from_memory, on a global. */
	Decider(uint64_t seed, uint64_t mask, uint64_t cookie, bool from_memory);
	/* One of the programs on kprobes, which disturb hits. */
	explicit Decider(const char *name);

	int prog_fd() const { return loaded_.prog_fd(); }
	bpf_program *program() const { return loaded_.program(); }
	stress::stress__bss *globals() const { return loaded_->bss; }
	uint64_t runs() const { return __atomic_load_n(&globals()->runs, __ATOMIC_RELAXED); }
	uint64_t accepted() const
	{
		return __atomic_load_n(&globals()->accepted, __ATOMIC_RELAXED);
	}
	Fd link(const Event &event) const { return must_link(prog_fd(), event, globals()->cookie); }
	/* 0 before 5.12, which does not count misses. */
	uint64_t misses() const { return misses_of_program(prog_fd()).value_or(0); }

private:
	Loaded<stress> loaded_;
};

class Kprobe {
public:
	Kprobe(const Decider &program, const char *function)
		: link_(bpf_program__attach_kprobe(program.program(), false, function))
	{
	}
	~Kprobe() { bpf_link__destroy(link_); }
	Kprobe(const Kprobe &) = delete;
	bool attached() const { return link_; }

private:
	bpf_link *link_;
};
