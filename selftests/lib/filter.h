/* SPDX-License-Identifier: GPL-2.0 */
/* The filter that tests put on their events: a program whose verdict they choose. */
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bpf/filter.h"
#include "lib/event.h"
#include "lib/fd.h"

struct filter; /* the skeleton */
template <typename Skeleton> class Loaded;

/* The programs of filter.bpf.c, in this order: first the types of which only one belongs to an overflow. */
enum class Program {
	ON_OVERFLOW,
	ON_TRACEPOINT,
	ON_KPROBE, /* and uprobes */
	ON_RAW_TRACEPOINT,

	/* On overflows too; beside giving a verdict, they */
	LOOKS, /* report their context */
	READS_COOKIE,
	CHECKS_COOKIE, /* slowly, against the wanted one */
	GETS_STACK,
	GETS_STACK_ID,
	GETS_FRAME, /* get one frame of the stack */
	OUTPUTS_SAMPLE, /* the same, and write a sample of another event, that of outputs_to() */
	PRINTS, /* the same, and write to the trace, which is the hit of a tracepoint */
	PRINTS_ALONE, /* write to the trace */
	GETS_TASK_STACK, /* get one frame, and walk the kernel's stack */
	FILLS_RINGBUF, /* with the first argument of the function that was hit */
	TAIL_CALLS, /* ON_OVERFLOW, whose verdict then counts */
	SENDS_SIGNAL, /* SIGUSR1, to the process that was hit */
	READS_SAMPLE, /* in the kernel's own memory, where its context has no field for it */
	CALLS_REPLACEABLE, /* can_be_replaced(), which has the verdict, and is a target of what follows */
	WORKS, /* take their time */

	/* Not on overflows, but linked to a function of another program; these do what READS_SAMPLE does. */
	REPLACES, /* in its place */
	TRACES, /* before it */
};

/* A loaded program of filter.bpf.c, which at first rejects everything. */
class Filter {
public:
	/* REPLACES and TRACES are loaded for can_be_replaced() of @target, to which link_to_target() links them. */
	explicit Filter(Program which = Program::ON_OVERFLOW, const Filter *target = nullptr);
	~Filter();
	Filter(const Filter &) = delete;

	int prog_fd() const;

	/* From now on: return @verdict if the condition holds, else 0. */
	void returns(uint32_t verdict);
	void returns_if(uint32_t verdict, enum filter_condition what, uint64_t wanted);

	/* From now on CHECKS_COOKIE takes @ns for it, and wants @cookie. */
	void checks(uint64_t cookie, uint64_t ns);

	/* From now on TAIL_CALLS calls @callee. */
	void tail_calls(const Filter &callee);

	/* From now on OUTPUTS_SAMPLE writes to @event, of PERF_COUNT_SW_BPF_OUTPUT. */
	void outputs_to(const Event &event);

	/* From now on REPLACES or TRACES is called; until the Fd closes. */
	Fd link_to_target();

	/* From now on WORKS copies FILTER_BLOCK bytes from @block so many times, FILTER_LONGEST at most. */
	void works(const void *block, uint64_t times);

	/* How often the program ran. */
	uint64_t runs() const;

	/* What the last run of a program that reads or gets something saw. */
	filter_look look() const;

	/* Takes what FILLS_RINGBUF has written out of its ring. */
	std::vector<uint64_t> take() const;

	/* Whether link() can, see lib/program.h. */
	bool can_link() const;

	/*
	 * As create_link() and must_link(); EEXIST as for Event::attach(), which is left in @err
	 * with an invalid Fd. unavailable() before 5.15.
	 */
	Fd link(const Event &event, int *err, uint64_t cookie = 0) const;
	Fd link(const Event &event) const;

private:
	void set_callee(int fd);

	std::unique_ptr<Loaded<struct filter>> program_;
};
