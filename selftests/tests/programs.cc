// SPDX-License-Identifier: GPL-2.0
/* The abilities of a program while it decides on a hit: C1, C2, C7, C8. */
#include <bpf/bpf.h>
#include <bpf/btf.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <iterator>

#include "lib/clock.h"
#include "lib/kernel.h"
#include "lib/program.h"
#include "tests/callchain.h"
#include "tests/common.h"

static volatile uint64_t watched;

static perf_event_attr watchpoint()
{
	return breakpoint(Access::WRITE, &watched, sizeof(watched));
}

static uint64_t address_of(const volatile void *p)
{
	return reinterpret_cast<uintptr_t>(p);
}

static uint64_t address_of(void (*function)(uint64_t))
{
	return reinterpret_cast<uintptr_t>(function);
}

TEST("programs.context.x", "C1",
     "the program of a breakpoint sees registers, address and period in its context")
{
	Filter filter(Program::LOOKS);
	Event event(breakpoint(hit));

	event.enable(filter);
	for (uint64_t i = 1; i <= HITS; i++) {
		hit(i);

		filter_snapshot snapshot = filter.snapshot();

		EXPECT_HEX(snapshot.ip, address_of(hit), "instruction pointer in ctx->regs");
		EXPECT_VALUE(snapshot.argument, i, "first argument in ctx->regs");
		EXPECT_HEX(snapshot.addr, address_of(hit), "ctx->addr");
		EXPECT_VALUE(snapshot.period, 1, "ctx->sample_period");
		EXPECT_EQ(snapshot.count, i, "hits read by the program");
	}
}

TEST("programs.context.w8", "C1",
     "the program of a watchpoint sees the address and the period in its context")
{
	Filter filter(Program::LOOKS);
	Event event(watchpoint());

	event.enable(filter);
	for (uint64_t i = 1; i <= HITS; i++) {
		watched = i;

		filter_snapshot snapshot = filter.snapshot();

		EXPECT_HEX(snapshot.addr, address_of(&watched), "ctx->addr");
		EXPECT_VALUE(snapshot.period, 1, "ctx->sample_period");
		EXPECT_EQ(snapshot.count, i, "hits read by the program");
	}
}

TEST("programs.context.period", "C1",
     "with sample_period N the program runs on every Nth hit and sees N as ctx->sample_period")
{
	constexpr uint64_t PERIOD = 4;
	perf_event_attr attr = breakpoint(hit);
	Filter filter(Program::LOOKS);

	attr.sample_period = PERIOD;

	Event event(attr);

	event.enable(filter);
	for (uint64_t i = 1; i <= HITS; i++) {
		hit(i);
		EXPECT_EQ(filter.runs(), i / PERIOD, "runs of the program");
		EXPECT_VALUE(filter.snapshot().argument, i / PERIOD * PERIOD,
			     "the argument that the program saw last");
	}
	EXPECT_VALUE(filter.snapshot().period, PERIOD, "ctx->sample_period");
}

TEST("programs.value", "C1",
     "a program that reads the watched word delivers only hits with the wanted value in it")
{
	constexpr uint64_t WANTED = 3, KINDS = 4;
	Filter filter;
	Signals signals({ SETSIG });
	Event event(watchpoint());
	Ring ring(event);
	uint64_t wrong = 0, wanted = 0, old = watched;

	event.async(SETSIG, gettid());
	filter.returns_if(1, FILTER_VALUE, WANTED);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		const uint64_t before = Signals::count(SETSIG), value = i % KINDS;
		/* Memory has the old or the new value when the write hits. */
		const bool seen = (STOPS_BEFORE_ACCESS ? old : value) == WANTED;

		watched = old = value;
		wrong += Signals::count(SETSIG) - before != seen;
		wanted += seen;
	}
	ring.drain();
	expect_hits(event, filter, HITS);
	EXPECT_EQ(ring.samples(), wanted, "samples");
	EXPECT_EQ(wrong, 0, "writes with the wrong number of signals");
}

TEST("programs.value.read", "C1",
     "a program may read the word that its own read-write watchpoint covers")
{
	perf_event_attr attr = breakpoint(Access::READ_WRITE, &watched, sizeof(watched));
	Filter filter;
	Event event(attr);
	Ring ring(event);

	/* The program's own read is in kernel mode, which the event excludes. */
	filter.returns_if(1, FILTER_VALUE, 1);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		watched = i % 2;
		(void)watched;
	}
	ring.drain();
	expect_hits(event, filter, 2 * HITS);
	/*
	 * Half of the reads and writes find a 1. If hits come before the access, a write finds the
	 * value of the previous write, and no write finds the last value.
	 */
	EXPECT_EQ(ring.samples(), STOPS_BEFORE_ACCESS ? HITS - 1 : HITS, "samples");
}

/* Programs that also do something else. Their return value must still decide on the hit. */
static const struct {
	const char *name, *what;
	Program id;
	uint64_t sample_type; /* in addition to IP and ADDR */
	uint64_t usr1; /* SIGUSR1s for HITS hits */
} programs[] = {
	{ "looks", "reads the count of its event", Program::LOOKS, 0, 0 },
	{ "cookie", "reads its cookie", Program::READS_COOKIE, 0, 0 },
	{ "stack", "calls bpf_get_stack()", Program::GETS_STACK, 0, 0 },
	{ "stack_callchain", "calls bpf_get_stack() on an event with callchains",
	  Program::GETS_STACK, PERF_SAMPLE_CALLCHAIN, 0 },
	{ "ringbuf", "writes to a BPF ring buffer", Program::FILLS_RINGBUF, 0, 0 },
	{ "tail_call", "makes a tail call", Program::TAIL_CALLS, 0, 0 },
	{ "signal", "sends a signal", Program::SENDS_SIGNAL, 0, HITS },
};

static void check_verdict(decltype(*programs) &program, bool accept)
{
	perf_event_attr attr = breakpoint(hit);
	Filter filter(program.id);
	Signals signals({ SETSIG, SIGUSR1 });

	attr.sample_type |= program.sample_type;

	Event event(attr);
	Ring ring(event);
	uint64_t polls = 0;

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		polls += ring.poll_ready();
	}
	ring.drain();
	expect_hits(event, filter, HITS);
	EXPECT_EQ(ring.samples(), accept ? HITS : 0, "samples");
	EXPECT_EQ(polls, accept ? HITS : 0, "times that poll() was ready");
	EXPECT_EQ(Signals::count(SETSIG), accept ? HITS : 0, "signals of the event");
	EXPECT_EQ(Signals::count(SIGUSR1), program.usr1, "SIGUSR1s sent by the program");
}

static const bool added = [] {
	for (auto &p : programs) {
		std::string name = std::string("programs.does_") + p.name, what = p.what;

		add_test({ name + ".rejected", "C1", "a program that " + what + " can reject a hit",
			   [&p] { check_verdict(p, false); } });
		add_test({ name + ".accepted", "C2", "a program that " + what + " can accept a hit",
			   [&p] { check_verdict(p, true); } });
	}
	return true;
}();

/*
 * bpf_get_stack() returns the callchain of the sample if there is one. Before 6.1 it does so only
 * for PMU events; for a breakpoint it unwinds from the registers, which is not allowed on a precise
 * event.
 */
static bool takes_callchain()
{
	return !kernel_before(6, 1);
}

TEST("programs.stack", "C1",
     "the stack that bpf_get_stack() returns for a rejected hit begins at the instruction that hit")
{
	/* The first word of a sample's callchain is the kind of the frames that follow. */
	const struct {
		uint64_t sample_type;
		size_t first;
	} cases[] = { { 0, 0 }, { PERF_SAMPLE_CALLCHAIN, takes_callchain() } };

	for (auto &c : cases) {
		perf_event_attr attr = breakpoint(hit);
		Filter filter(Program::GETS_STACK);

		attr.sample_type |= c.sample_type;

		Event event(attr);

		event.enable(filter);
		hit(0);

		filter_snapshot snapshot = filter.snapshot();

		EXPECT_GT(snapshot.stack_bytes, 0, "bytes from bpf_get_stack()");
		EXPECT_HEX(snapshot.stack[c.first], address_of(hit), "innermost frame");
		if (c.first)
			EXPECT_HEX(snapshot.stack[0], uint64_t(PERF_CONTEXT_USER),
				   "kind of frames");
	}
}

/*
 * The program accepts. While it runs, another stack is unwound into the buffer that holds the
 * callchain of the sample: for the event with @other_attr, or for the program itself.
 */
static void check_callchain(Program program, perf_event_attr other_attr,
			    bool (*unwound)(const filter_snapshot &snapshot))
{
	Filter filter(program);
	Event event(with_user_callchain(breakpoint(hit))), other(other_attr);
	Ring ring(event), others(other);

	if (program == Program::OUTPUTS_SAMPLE)
		filter.outputs_to(other);
	filter.returns(1);
	other.enable();
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		EXPECT_TRUE(unwound(filter.snapshot()),
			    "the program caused another stack to be unwound");
	}
	event.disable();
	others.drain();
	EXPECT_EQ(others.samples(),
		  program == Program::OUTPUTS_SAMPLE || program == Program::PRINTS ? HITS : 0,
		  "samples of the other event");
	expect_user_callchains(ring, HITS);
}

TEST("programs.callchain.frame", "C2",
     "bpf_get_stack() of one frame does not shorten the callchain of the sample")
{
	check_callchain(Program::GETS_FRAME, software(PERF_COUNT_SW_DUMMY),
			[](auto &snapshot) { return snapshot.stack_bytes > 0; });
}

TEST("programs.callchain.output", "C2",
     "an accepted hit keeps its own callchain when the program writes a sample of another event")
{
	check_callchain(Program::OUTPUTS_SAMPLE,
			with_kernel_callchain(software(PERF_COUNT_SW_BPF_OUTPUT)),
			[](auto &snapshot) { return snapshot.err == 0; });
}

TEST("programs.callchain.event", "C2",
     "an accepted hit keeps its own callchain when another event overflows while the program runs")
{
	check_callchain(Program::PRINTS, with_kernel_callchain(traced_prints()),
			[](auto &snapshot) { return snapshot.err > 0; });
}

TEST("programs.callchain.task_stack", "C2",
     "an accepted hit keeps its own callchain when the program calls bpf_get_task_stack()")
{
	check_callchain(Program::GETS_TASK_STACK, software(PERF_COUNT_SW_DUMMY),
			[](auto &snapshot) { return snapshot.err > 0; });
}

/*
 * Since 6.3 the sample of a hit is filled in before the program runs. The series may skip that if
 * the program cannot see the sample. These tests cover the programs that can see it.
 */
static perf_event_attr with_sample()
{
	if (kernel_before(6, 3))
		unavailable(
			"the kernel fills in the sample after the program has run (before 6.3)");

	perf_event_attr attr = breakpoint(hit);

	attr.sample_type |= PERF_SAMPLE_IP | PERF_SAMPLE_TID;
	return attr;
}

static void expect_sample(const Filter &filter, const perf_event_attr &attr)
{
	EXPECT_HEX(filter.snapshot().sample_flags & attr.sample_type, attr.sample_type,
		   "PERF_SAMPLE_* bits of the sample that are filled in");
}

static void check_sample(Program program)
{
	const perf_event_attr attr = with_sample();
	Filter filter(program);
	Event event(attr);

	event.enable(filter);
	hit(0);
	expect_sample(filter, attr);
}

TEST_OF("programs.sample.read", "C1", "a program that reads kernel memory sees the sample",
	check_sample(Program::READS_SAMPLE))

TEST_OF("programs.sample.read_text", "C1",
	"a program that reads kernel memory as text sees the sample",
	check_sample(Program::READS_SAMPLE_TEXT))

TEST_OF("programs.sample.untrusted", "C1",
	"a program that passes its context as an untrusted pointer sees the sample",
	check_sample(Program::PASSES_UNTRUSTED))

TEST("programs.sample.tail_call", "C1", "a program reached by a tail call sees the sample")
{
	const perf_event_attr attr = with_sample();
	Filter caller(Program::TAIL_CALLS), filter(Program::READS_SAMPLE);
	Event event(attr);

	caller.tail_calls(filter);
	event.enable(caller);
	hit(0);
	expect_sample(filter, attr);
}

TEST("programs.sample.replace", "C1",
     "a program that replaces or traces a function of another program sees the sample")
{
	const perf_event_attr attr = with_sample();

	for (Program which : { Program::REPLACES, Program::TRACES }) {
		Filter target(Program::CALLS_REPLACEABLE), filter(which, &target);
		Event event(attr);

		event.enable(target);
		hit(0);
		EXPECT_EQ(filter.runs(), 0, "runs of the program before it is linked");

		Fd link = filter.link_to_target();

		hit(0);
		EXPECT_EQ(filter.runs(), 1, "runs of the program");
		expect_sample(filter, attr);
	}
}

/* The BTF id by which a program calls a kernel function. */
static int kernel_btf_id_of(const char *function)
{
	btf *types = btf__load_vmlinux_btf();

	if (!types)
		unavailable("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)");

	const int id = btf__find_by_name_kind(types, function, BTF_KIND_FUNC);

	btf__free(types);
	if (id < 0)
		unavailable("the kernel has no bpf_cast_to_kern_ctx() (it came with 6.2)");
	return id;
}

/* Not in filter.bpf.c: without kernel BTF, libbpf cannot load an object that calls a kfunc. */
TEST("programs.sample.kfunc", "C1", "a program that calls bpf_cast_to_kern_ctx() sees the sample")
{
	constexpr int16_t DATA_OF_CONTEXT = 8, FLAGS_OF_DATA = 0; /* offsets, on 64 bits */
	const perf_event_attr attr = with_sample();
	const int cast = kernel_btf_id_of("bpf_cast_to_kern_ctx"), zero = 0;
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(int), sizeof(uint64_t), 1,
			      nullptr));
	const bpf_insn insns[] = {
		{ BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_KFUNC_CALL, 0, cast },
		{ BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_0, DATA_OF_CONTEXT, 0 },
		{ BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_2, BPF_REG_1, FLAGS_OF_DATA, 0 },
		{ BPF_LD | BPF_IMM | BPF_DW, BPF_REG_3, BPF_PSEUDO_MAP_VALUE, 0, map.get() },
		{ 0, 0, 0, 0, 0 },
		{ BPF_STX | BPF_MEM | BPF_DW, BPF_REG_3, BPF_REG_2, 0, 0 },
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0 },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	Fd program(bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "casts", "GPL", insns, std::size(insns),
				 nullptr));
	Event event(attr);
	uint64_t flags = 0;

	if (!program.valid())
		setup_failed("bpf_prog_load", errno);

	Fd link = must_link(program.get(), event);

	event.enable();
	hit(0);
	if (bpf_map_lookup_elem(map.get(), &zero, &flags))
		setup_failed("bpf_map_lookup_elem", errno);
	EXPECT_HEX(flags & attr.sample_type, attr.sample_type,
		   "PERF_SAMPLE_* bits of the sample that are filled in");
}

TEST("programs.output.signals", "C2",
     "since 6.10, an event sends a signal for each sample that a program writes to it")
{
	const bool signalled = !kernel_before(6, 10);
	Filter filter(Program::OUTPUTS_SAMPLE);
	Signals signals({ SETSIG });
	perf_event_attr attr = software(PERF_COUNT_SW_BPF_OUTPUT);

	attr.wakeup_events = 1;

	Event event(breakpoint(hit)), output(attr);
	Ring ring(output);

	output.async(SETSIG, gettid());
	output.enable();
	filter.outputs_to(output);
	event.enable(filter);
	for (uint64_t i = 1; i <= HITS; i++) {
		hit(i);
		EXPECT_EQ(Signals::count(SETSIG), signalled ? i : 0, "signals");
	}
	ring.drain();
	EXPECT_EQ(ring.samples(), HITS, "samples");
	expect_hits(event, filter, HITS);
}

TEST("programs.ringbuf", "C1",
     "data that a program writes to a BPF ring buffer is kept although it rejects the hit")
{
	Filter filter(Program::FILLS_RINGBUF);
	Event event(breakpoint(hit));

	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++)
		hit(i * i);

	std::vector<uint64_t> values = filter.take();

	EXPECT_EQ(values.size(), HITS, "values in the BPF ring buffer");
	for (uint64_t i = 0; i < values.size(); i++)
		EXPECT_VALUE(values[i], i * i, "value in the BPF ring buffer");
}

TEST("programs.tail_call", "C1", "the return value of a tail call's target decides on the hit")
{
	constexpr uint64_t WANTED = 7;
	Filter filter(Program::TAIL_CALLS);
	Event event(breakpoint(hit));
	Ring ring(event);

	filter.returns_if(1, FILTER_ARGUMENT, WANTED);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++)
		hit(i);
	ring.drain();
	EXPECT_EQ(filter.runs(), HITS, "runs of the tail call's target");
	EXPECT_EQ(ring.samples(), 1, "samples");
}

static void check_returns(Program program)
{
	for (uint32_t verdict :
	     { 1u, 2u, 0x100u, 0x10000u, uint32_t(INT_MAX), uint32_t(INT_MIN), uint32_t(-1) }) {
		Filter filter(program);
		Signals signals({ SETSIG });
		Event event(breakpoint(hit));
		Ring ring(event);

		event.async(SETSIG, gettid());
		filter.returns(verdict);
		event.must_attach(filter);
		event.must_refresh(LIMIT);
		for (uint64_t i = 0; i < HITS; i++)
			hit(i);
		ring.drain();
		EXPECT_EQ(event.count(), LIMIT, "hits counted until the limit");
		expect_delivered(ring, LIMIT);
	}
}

TEST("programs.returns", "C2",
     "any non-zero return value accepts the hit, even if it is large or negative")
{
	check_returns(Program::ON_OVERFLOW);
}

TEST("programs.returns.stack", "C2",
     "any non-zero return value of a program that calls bpf_get_stack() accepts the hit")
{
	check_returns(Program::GETS_STACK);
}

TEST("programs.changes_its_mind", "C1",
     "each hit is accepted or rejected by its own run of the program")
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));
	uint64_t wrong = 0;

	event.async(SETSIG, gettid());
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		uint64_t before = Signals::count(SETSIG);

		filter.returns(i % 2);
		hit(i);
		wrong += Signals::count(SETSIG) - before != i % 2;
	}
	EXPECT_EQ(wrong, 0, "calls with the wrong number of signals");
}

TEST("programs.counting", "C3", "the program of a breakpoint without a sample period never runs")
{
	perf_event_attr attr = breakpoint(hit);
	Filter filter;

	attr.sample_period = 0;

	Event event(attr);

	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++)
		hit(i);
	EXPECT_EQ(event.count(), HITS, "hits counted");
	EXPECT_EQ(filter.runs(), 0, "runs of the program");
}

TEST("programs.cookie", "C7",
     "a program on several events tells them apart by the cookies of their links")
{
	constexpr uint64_t COOKIE = 0x1122334455667788, OTHER = ~COOKIE;
	Filter filter(Program::READS_COOKIE);
	Event event(breakpoint(hit)), other(breakpoint(hit_other));
	int err;
	Fd link = filter.link(event, &err, COOKIE), other_link = filter.link(other, &err, OTHER);

	event.enable();
	other.enable();
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		EXPECT_HEX(filter.snapshot().cookie, COOKIE, "cookie of the first event");
		hit_other(i);
		EXPECT_HEX(filter.snapshot().cookie, OTHER, "cookie of the second event");
	}
}

TEST("programs.cookie.replaced", "C7",
     "a new link has its own cookie, and an attachment by ioctl has none")
{
	Filter filter(Program::READS_COOKIE);
	Event event(breakpoint(hit));
	int err;

	event.enable();
	for (uint64_t cookie = 1; cookie <= 3; cookie++) {
		Fd link = filter.link(event, &err, cookie);

		hit(0);
		EXPECT_HEX(filter.snapshot().cookie, cookie, "cookie of the link");
	}
	event.must_attach(filter);
	hit(0);
	EXPECT_HEX(filter.snapshot().cookie, 0, "cookie of an attachment by ioctl");
	EXPECT_EQ(filter.runs(), 4, "runs of the program");
}

static double seconds_to_attach(const Filter &filter, const Event &event, uint64_t cookie)
{
	const double begun = seconds_now();
	int err;

	filter.link(event, &err, cookie).close();

	const double took = seconds_now() - begun;

	if (err)
		setup_failed("bpf_link_create", err);
	return took;
}

/* Alternate and compare the medians, so that a busy machine affects both in the same way. */
TEST("programs.cookie.no_wait", "C7",
     "attaching with a new cookie does not wait for readers of the previous cookie")
{
	constexpr int TIMES = 101, MORE = 5;
	Filter filter(Program::READS_COOKIE);
	Event event(breakpoint(hit));
	double same[TIMES], another[TIMES];

	for (int i = 0; i < TIMES; i++) {
		another[i] = seconds_to_attach(filter, event, i + 1);
		same[i] = seconds_to_attach(filter, event, i + 1);
	}
	for (double *all : { same, another })
		std::nth_element(all, all + TIMES / 2, all + TIMES);
	note("%.0f us with the same cookie, %.0f us with another", same[TIMES / 2] * 1e6,
	     another[TIMES / 2] * 1e6);
	EXPECT_LT(another[TIMES / 2], MORE * same[TIMES / 2],
		  "seconds to attach with another cookie");
}

/* precise_ip promises an exact instruction pointer, so the stack must begin there, too. */
TEST("programs.precise_ip", "C8",
     "a program that calls bpf_get_stack() attaches to a precise event only if the samples have a "
     "full callchain")
{
	const struct {
		Program program;
		uint64_t sample_type;
		bool no_kernel_part, no_user_part;
		int err;
	} cases[] = {
		{ Program::ON_OVERFLOW, 0, false, false, 0 },
		{ Program::GETS_STACK, 0, false, false, EPROTO },
		{ Program::GETS_STACK, PERF_SAMPLE_CALLCHAIN, true, false, EPROTO },
		{ Program::GETS_STACK, PERF_SAMPLE_CALLCHAIN, false, true, EPROTO },
		{ Program::GETS_STACK, PERF_SAMPLE_CALLCHAIN, false, false,
		  takes_callchain() ? 0 : EPROTO },
	};

	for (uint32_t precise : { 1, 2, 3 }) {
		for (auto &c : cases) {
			perf_event_attr attr = breakpoint(hit);
			Filter filter(c.program);

			attr.precise_ip = precise;
			attr.sample_type |= c.sample_type;
			attr.exclude_callchain_kernel = c.no_kernel_part;
			attr.exclude_callchain_user = c.no_user_part;

			Event event(attr);

			EXPECT_ERRNO(event.attach(filter), c.err, "attaching to a precise event");
			event.enable();
			for (uint64_t i = 0; i < HITS; i++)
				hit(i);
			EXPECT_EQ(event.count(), HITS, "hits counted");
			EXPECT_EQ(filter.runs(), c.err ? 0 : HITS, "runs of the program");
		}
	}
}

TEST("programs.shared", "C1", "a program that is attached to several events runs for each of them")
{
	constexpr int EVENTS = 3; /* uses three of the four debug registers */
	Filter filter;
	std::vector<Event> events;

	for (int i = 0; i < EVENTS; i++) {
		events.emplace_back(breakpoint(hit));
		events.back().must_attach(filter);
		events.back().enable();
	}
	for (uint64_t i = 0; i < HITS; i++)
		hit(i);
	for (Event &event : events)
		EXPECT_EQ(event.count(), HITS, "hits counted by each event");
	EXPECT_EQ(filter.runs(), EVENTS * HITS, "runs of the program");
}
