/* SPDX-License-Identifier: GPL-2.0 */
/* The filter that tests attach to their events: a program whose return value they choose. */
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bpf/filter.h"
#include "lib/event.h"
#include "lib/fd.h"

struct filter; /* the skeleton */
template <typename Skeleton> class Loaded;

/* The programs of filter.bpf.c. Only one of the first four has the type for overflows. */
enum class Program {
	ON_OVERFLOW,
	ON_TRACEPOINT,
	ON_KPROBE, /* and uprobes */
	ON_RAW_TRACEPOINT,

	/* These are for overflows, too. Besides deciding on the hit, they */
	LOOKS, /* report their context */
	READS_COOKIE,
	CHECKS_COOKIE, /* compare the cookie with the expected one, slowly */
	GETS_STACK,
	GETS_STACK_ID,
	GETS_FRAME, /* get one frame of the stack */
	OUTPUTS_SAMPLE, /* the same, and write a sample of the event set by outputs_to() */
	PRINTS, /* the same, and call bpf_trace_printk(), which hits a tracepoint */
	PRINTS_ALONE, /* only call bpf_trace_printk() */
	GETS_TASK_STACK, /* get one frame, and call bpf_get_task_stack() */
	FILLS_RINGBUF, /* write the first argument of the function that was hit */
	TAIL_CALLS, /* tail-call ON_OVERFLOW, which then decides on the hit */
	SENDS_SIGNAL, /* send SIGUSR1 to the process that was hit */
	READS_SAMPLE, /* read the sample in kernel memory, to which ctx has no field */
	CALLS_REPLACEABLE, /* call can_be_replaced(), which decides; a target for the next two */
	WORKS, /* run for a long time */
	PASSES_UNTRUSTED, /* do what READS_SAMPLE does, in a function with an untrusted argument */

	/* These are linked to a function of another program, and do what READS_SAMPLE does. */
	REPLACES, /* instead of the function */
	TRACES, /* at the entry of the function */
};

/* A loaded program of filter.bpf.c, which rejects all hits at first. */
class Filter {
public:
	/* REPLACES and TRACES are loaded for can_be_replaced() of @target, see link_to_target(). */
	explicit Filter(Program which = Program::ON_OVERFLOW, const Filter *target = nullptr);
	~Filter();
	Filter(const Filter &) = delete;

	int prog_fd() const;

	/* Each of the following takes effect at the program's next run. */

	/* Returns @verdict if the condition is true, else 0. */
	void returns(uint32_t verdict);
	void returns_if(uint32_t verdict, enum filter_condition what, uint64_t wanted);

	/* CHECKS_COOKIE expects @cookie, and takes @ns. */
	void checks(uint64_t cookie, uint64_t ns);

	/* TAIL_CALLS calls @callee. */
	void tail_calls(const Filter &callee);

	/* OUTPUTS_SAMPLE writes to @event, which must be a PERF_COUNT_SW_BPF_OUTPUT. */
	void outputs_to(const Event &event);

	/* Links REPLACES or TRACES to its target, until the Fd is closed. */
	Fd link_to_target();

	/* WORKS copies FILTER_BLOCK bytes from @block @times times, but at most FILTER_LONGEST. */
	void works(const void *block, uint64_t times);

	/* How often the program has run. */
	uint64_t runs() const;

	/* What the last run of a program that reads or gets something saw. */
	filter_look look() const;

	/* Removes and returns what FILLS_RINGBUF has written to its ring buffer. */
	std::vector<uint64_t> take() const;

	/* Whether the kernel can link() the program, see lib/program.h. */
	bool can_link() const;

	/*
	 * See create_link() and must_link(). The errno, EEXIST as for Event::attach(), is in @err
	 * if the Fd is invalid. Both call unavailable() before 5.15.
	 */
	Fd link(const Event &event, int *err, uint64_t cookie = 0) const;
	Fd link(const Event &event) const;

private:
	void set_callee(int fd);

	std::unique_ptr<Loaded<struct filter>> program_;
};
