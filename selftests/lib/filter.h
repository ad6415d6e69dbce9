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

/* The programs of filter.bpf.c. Of the first four, only ON_OVERFLOW has the type for overflows. */
enum class Program {
	ON_OVERFLOW,
	ON_TRACEPOINT,
	ON_KPROBE, /* and uprobes */
	ON_RAW_TRACEPOINT,

	/* These have the type for overflows, too. Each decides on the hit and, in addition, */
	LOOKS, /* reports its context */
	READS_COOKIE,
	CHECKS_COOKIE, /* compares the cookie with the expected one, slowly */
	GETS_STACK,
	GETS_STACK_ID,
	GETS_FRAME, /* gets one frame of the stack */
	OUTPUTS_SAMPLE, /* gets one frame, and writes a sample of the event set by outputs_to() */
	PRINTS, /* gets one frame, and calls bpf_trace_printk(), which hits a tracepoint */
	PRINTS_ALONE, /* calls bpf_trace_printk() without getting a frame */
	GETS_TASK_STACK, /* gets one frame, and calls bpf_get_task_stack() */
	FILLS_RINGBUF, /* writes the first argument of the function that was hit */
	TAIL_CALLS, /* tail-calls ON_OVERFLOW, which then decides on the hit */
	SENDS_SIGNAL, /* sends SIGUSR1 to the process that has hit */
	READS_SAMPLE, /* reads the sample from kernel memory, because ctx has no field for it */
	READS_SAMPLE_TEXT, /* with bpf_probe_read_kernel_str() alone */
	CALLS_REPLACEABLE, /* calls can_be_replaced(), the target of REPLACES and TRACES */
	WORKS, /* runs for a long time */
	PASSES_UNTRUSTED, /* reads the sample in a function with an untrusted argument */

	/* Each of these is linked to a function of another program, and reads the sample */
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

	/* Each of the following functions takes effect at the program's next run. */

	/* The program returns @verdict if the condition is true, else 0. */
	void returns(uint32_t verdict);
	void returns_if(uint32_t verdict, enum filter_condition what, uint64_t wanted);

	/* CHECKS_COOKIE expects @cookie, and runs for @ns nanoseconds. */
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

	/* The values that the program read in its last run. */
	filter_snapshot snapshot() const;

	/* Removes and returns what FILLS_RINGBUF has written to its ring buffer. */
	std::vector<uint64_t> take() const;

	/* Whether the kernel can link() the program, see lib/program.h. */
	bool can_link() const;

	/*
	 * See create_link() and must_link(). If the Fd is invalid, *@err is the errno: EEXIST as
	 * for Event::attach(). Both call unavailable() before 5.15.
	 */
	Fd link(const Event &event, int *err, uint64_t cookie = 0) const;
	Fd link(const Event &event) const;

private:
	void set_callee(int fd);

	std::unique_ptr<Loaded<struct filter>> program_;
};
