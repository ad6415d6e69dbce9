// SPDX-License-Identifier: GPL-2.0
/*
 * Programs on tracepoints, kprobes and uprobes work as without the series (C5). Their events count
 * again after they were stopped (C10).
 */
#include <bpf/bpf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <sstream>
#include <cstdio>
#include <atomic>
#include <thread>

#include "harness/race.h"
#include "lib/program.h"
#include "tests/common.h"
#include "tests/tracing.h"
#include "tests/throttled.h"

/* Hits the tracing events below. */
static void getppid_times(uint64_t times)
{
	for (uint64_t i = 0; i < times; i++)
		syscall(SYS_getppid);
}

static perf_event_attr tracepoint()
{
	perf_event_attr attr = tracing_event(PERF_TYPE_TRACEPOINT);

	attr.config = id_of_tracepoint("syscalls/sys_enter_getppid");
	return attr;
}

static constexpr char sys_getppid[] = SYSCALL_SYMBOL("getppid");

static perf_event_attr kprobe()
{
	return kprobe_on(sys_getppid);
}

/* The offset of a function in this program's file, which a uprobe requires. */
static uint64_t file_offset_of(uintptr_t function)
{
	struct Where {
		uintptr_t function;
		uint64_t offset;
	} where = { function, 0 };

	dl_iterate_phdr(
		[](dl_phdr_info *info, size_t, void *data) {
			auto &where = *static_cast<Where *>(data);
			uint64_t addr = where.function - info->dlpi_addr;

			for (int i = 0; i < info->dlpi_phnum; i++) {
				auto &part = info->dlpi_phdr[i];

				if (part.p_type == PT_LOAD && addr - part.p_vaddr < part.p_filesz)
					where.offset = addr - part.p_vaddr + part.p_offset;
			}
			return 1; /* The first object is the program itself. */
		},
		&where);
	return where.offset;
}

template <typename Function> static perf_event_attr uprobe_on(Function *function)
{
	static const char path[] = "/proc/self/exe";
	long type = number_in("/sys/bus/event_source/devices/uprobe/type");

	if (type < 0)
		unavailable("no uprobe events (CONFIG_UPROBE_EVENTS)");

	perf_event_attr attr = tracing_event(type);

	attr.uprobe_path = reinterpret_cast<uintptr_t>(path);
	attr.probe_offset = file_offset_of(reinterpret_cast<uintptr_t>(function));
	return attr;
}

static perf_event_attr uprobe()
{
	return uprobe_on(hit);
}

static perf_event_attr uretprobe()
{
	perf_event_attr attr = uprobe();
	long bit = -1;
	Fd fd(open("/sys/bus/event_source/devices/uprobe/format/retprobe", O_RDONLY | O_CLOEXEC));
	char text[32] = {};

	if (fd.valid() && read(fd.get(), text, sizeof(text) - 1) > 0)
		sscanf(text, "config:%ld", &bit);
	if (bit < 0)
		unavailable("no uretprobe events");
	attr.config |= 1ul << bit;
	return attr;
}

/*
 * trace_call_bpf() runs the program before the event is counted, and a return value of 0 discards
 * the hit. If the overflow ran the program again, there would be two runs per hit.
 */
static const struct Tracing {
	const char *name;
	perf_event_attr (*attr)();
	Program program;
	void (*hits)(uint64_t times);
} tracings[] = {
	{ "tracepoint", tracepoint, Program::ON_TRACEPOINT, getppid_times },
	{ "kprobe", kprobe, Program::ON_KPROBE, getppid_times },
	{ "uprobe", uprobe, Program::ON_KPROBE, hit_times },
	{ "uretprobe", uretprobe, Program::ON_KPROBE, hit_times },
};

static void check_tracing(const Tracing &tracing, bool accept)
{
	Filter filter(tracing.program);
	Signals signals({ SETSIG });
	Event event(tracing.attr());
	Ring ring(event);

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);
	tracing.hits(HITS);
	event.disable();
	ring.drain();
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(event.count(), accept ? HITS : 0, "hits counted");
	expect_delivered(ring, accept ? HITS : 0);
}

static const bool added = [] {
	for (const Tracing &t : tracings) {
		std::string name = std::string("tracing.") + t.name, what = t.name;

		add_test({ name + ".rejected", "C5",
			   "a " + what +
				   " program that rejects discards the hit and runs once per hit",
			   [&t] { check_tracing(t, false); } });
		add_test({ name + ".accepted", "C5",
			   "a " + what + " program that accepts runs once per hit",
			   [&t] { check_tracing(t, true); } });
	}
	return true;
}();

static void check_limit_revives(const Tracing &tracing)
{
	Event event(tracing.attr());

	for (uint64_t round = 1; round <= 3; round++) {
		event.must_refresh(LIMIT);
		tracing.hits(HITS);
		EXPECT_EQ(event.count(), round * LIMIT, "hits counted after each limit");
	}
}

static const bool added_stopped = [] {
	for (const Tracing &t : tracings) {
		std::string name = std::string("tracing.") + t.name, what = t.name;

		add_test({ name + ".limit_revives", "C10",
			   "REFRESH re-enables a " + what + " event that has used up its limit",
			   [&t] { check_limit_revives(t); } });
		add_test({ name + ".throttled", "C10",
			   "a " + what +
				   " event that was throttled with its group counts again "
				   "afterwards",
			   [&t] { check_group_throttled(t.attr(), t.hits); } });
		add_test({ name + ".throttled.counter", "C10",
			   "a " + what +
				   " event without a sample period that was throttled with its "
				   "group counts again afterwards",
			   [&t] { check_group_throttled(without_period(t.attr()), t.hits); } });
	}
	return true;
}();

/*
 * A wakeup is a hit of the sleeping task. On 5.10 and 5.15 it uses up the limit, because there an
 * event overflows even if it is not scheduled in. REFRESH comes before the task runs, because the
 * test has a higher priority on the same CPU. The next hit is when the task wakes up the test.
 */
TEST("tracing.limit_of_sleeper", "C10",
     "REFRESH re-enables an event that used up its limit while its task was sleeping")
{
	const int cpu = usable_cpus().front();
	perf_event_attr attr = tracing_event(PERF_TYPE_TRACEPOINT);
	Pipe there, back;
	char byte = 'x';

	attr.config = id_of_tracepoint("sched/sched_waking");
	run_on(cpu);

	Child child([&] {
		there.in.close();
		while (read(there.out.get(), &byte, 1) == 1)
			if (write(back.in.get(), &byte, 1) != 1)
				return 1;
		return 0;
	});
	Event event(attr, child.pid(), cpu);

	become_realtime(1);
	/* A page fault of the test would let the child run. */
	if (mlockall(MCL_CURRENT))
		setup_failed("mlockall", errno);
	for (uint64_t i = 0; i < HITS; i++) {
		usleep(10'000); /* wait until the child sleeps */
		event.must_refresh(1);
		if (write(there.in.get(), &byte, 1) != 1)
			setup_failed("write", errno);

		const uint64_t before = event.count();

		event.must_refresh(1);
		if (read(back.out.get(), &byte, 1) != 1)
			setup_failed("read", errno);
		event.disable();
		EXPECT_GT(event.count(), before, "hits counted after the child has run");
	}
	there.in.close();
	EXPECT_STATUS(child.wait(), 0, "the child");
}

/* On 5.10 and 5.15, the hit uses up the limit while the event is on no CPU. */
TEST("tracing.limit_of_sleeper.other_cpu", "C10",
     "REFRESH re-enables an event that is hit by wakeups of a task that runs on another CPU")
{
	const std::vector<int> &cpus = usable_cpus();
	perf_event_attr attr = tracing_event(PERF_TYPE_TRACEPOINT);
	Pipe there, back;
	char byte = 'x';

	if (cpus.size() < 2)
		unavailable("there is only one CPU");
	if (kernel_before(5, 11))
		unavailable("the kernel prints a warning, see Known issues");
	attr.config = id_of_tracepoint("sched/sched_waking");
	run_on(cpus[0]);

	Child child([&] {
		run_on(cpus[1]);
		there.in.close();
		do
			if (write(back.in.get(), &byte, 1) != 1)
				return 1;
		while (read(there.out.get(), &byte, 1) == 1);
		return 0;
	});
	Event event(attr, child.pid(), cpus[0]);

	for (uint64_t i = 0; i < HITS; i++) {
		if (read(back.out.get(), &byte, 1) != 1)
			setup_failed("read", errno);
		wait_until_asleep(child.pid());
		event.must_refresh(1);
		if (write(there.in.get(), &byte, 1) != 1)
			setup_failed("write", errno);
	}
	/* Other tasks may wake it up as well. */
	EXPECT_GE(event.count(), HITS, "wakeups counted");
	there.in.close();
	EXPECT_STATUS(child.wait(), 0, "the child");
}

/* A raw tracepoint program has no event. Here an event on the same system call exists as well. */
TEST("tracing.raw_tracepoint", "C5",
     "a raw tracepoint program and the program of a tracepoint event each run once per hit")
{
	Filter filter(Program::ON_TRACEPOINT), raw(Program::ON_RAW_TRACEPOINT);
	Event event(tracepoint());
	Ring ring(event);
	Fd link(bpf_raw_tracepoint_open("sys_enter", raw.prog_fd()));

	if (!link.valid() && errno == ENOENT)
		unavailable("no raw tracepoint sys_enter");
	if (!link.valid())
		setup_failed("bpf_raw_tracepoint_open", errno);
	event.enable(filter);
	for (uint32_t verdict : { 0, 1 }) {
		raw.returns(verdict);
		getppid_times(HITS);
	}
	event.disable();
	link.close();
	ring.drain();
	EXPECT_EQ(raw.runs(), 2 * HITS, "runs of the raw tracepoint's program");
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the event's rejecting program");
	EXPECT_EQ(ring.samples(), 0, "samples");
}

/*
 * A uprobe is inserted into the memory of the task for which its event was opened. If the parent
 * exits with the context of its child, it must not remove the uprobe from the child.
 */
static void check_inherited_uprobe(const perf_event_attr &attr)
{
	run_on(usable_cpus().front());

	/*
	 * A busy CPU can prevent the swap of the contexts, so try several times, but on PREEMPT_RT,
	 * where closing a uprobe takes seconds, only a few.
	 */
	const int rounds = kernel_is_realtime() ? 3 : 10;
	uint64_t hits = HITS;

	for (int round = 0; round < rounds && hits == HITS; round++) {
		hits = after_exit_with_context_of_child([&] { return Event(inherited(attr)); },
							[](Event &event) {
								uint64_t before = event.count();

								hit_times(HITS);
								return event.count() - before;
							});

		EXPECT_EQ(hits, HITS, "hits counted in the child");
	}
}

TEST_OF("tracing.uprobe.inherited", "C3",
	"an inherited uprobe event counts in the child after its parent has exited",
	check_inherited_uprobe(uprobe()))

/* A uprobe on hit() that is created in tracefs, as perf-probe(1) does. */
class TracefsUprobe {
public:
	TracefsUprobe()
	{
		char path[PATH_MAX] = "";
		const uint64_t offset = file_offset_of(reinterpret_cast<uintptr_t>(hit));
		std::ostringstream command;

		id_of_tracepoint("syscalls/sys_enter_getppid"); /* mounts tracefs */
		if (access(FILE, W_OK))
			unavailable("no uprobe events (CONFIG_UPROBE_EVENTS)");
		if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
			setup_failed("readlink of /proc/self/exe", errno);
		command << "p:" << name_ << " " << path << ":" << offset;
		if (!write(command.str()))
			setup_failed("writing to uprobe_events", errno);
	}
	~TracefsUprobe()
	{
		/* EBUSY until the last event is freed, which may be after its task has exited. */
		for (int tries = 0; !write("-:" + name_) && errno == EBUSY && tries < 100; tries++)
			usleep(10'000);
	}
	TracefsUprobe(const TracefsUprobe &) = delete;

	perf_event_attr attr() const
	{
		perf_event_attr attr = tracing_event(PERF_TYPE_TRACEPOINT);

		attr.config = id_of_tracepoint(name_.c_str());
		return attr;
	}

private:
	static constexpr char FILE[] = "/sys/kernel/tracing/uprobe_events";
	/* Another run may have left its uprobe behind. */
	const std::string name_ = "perf_bpf_filter/hit_" + std::to_string(getpid());

	static bool write(const std::string &command)
	{
		/* Appends: truncating the file removes all uprobes. */
		const Fd file(open(FILE, O_WRONLY | O_APPEND | O_CLOEXEC));

		return ::write(file.get(), command.data(), command.size()) ==
		       ssize_t(command.size());
	}
};

TEST("tracing.uprobe.inherited.tracefs", "C3",
     "an inherited event on a tracefs uprobe counts in the child after its parent has exited")
{
	const TracefsUprobe uprobe;

	check_inherited_uprobe(uprobe.attr());
}

TEST("tracing.uprobe_on_breakpoint", "C5",
     "a uprobe and a breakpoint on one function each follow their own program")
{
	for (bool breakpoint_accepts : { false, true }) {
		Filter on_uprobe(Program::ON_KPROBE), on_breakpoint;
		Event probe(uprobe()), point(breakpoint(hit));
		Ring probe_ring(probe), point_ring(point);

		on_uprobe.returns(!breakpoint_accepts);
		on_breakpoint.returns(breakpoint_accepts);
		probe.must_attach(on_uprobe);
		point.must_attach(on_breakpoint);
		probe.enable();
		point.enable();
		hit_times(HITS);
		probe.disable();
		point.disable();
		probe_ring.drain();
		point_ring.drain();
		EXPECT_EQ(on_uprobe.runs(), HITS, "runs of the uprobe's program");
		EXPECT_EQ(on_breakpoint.runs(), HITS, "runs of the breakpoint's program");
		EXPECT_EQ(point.count(), HITS, "hits of the breakpoint");
		EXPECT_EQ(probe_ring.samples(), breakpoint_accepts ? 0 : HITS,
			  "samples of the uprobe");
		EXPECT_EQ(point_ring.samples(), breakpoint_accepts ? HITS : 0,
			  "samples of the breakpoint");
	}
}

asm(".pushsection .text\n"
    ".globl branch_1, branch_2\n"
    ".balign 16\n"
    "branch_1: " ASM_JUMP "branch_2\n"
    "branch_2: nop\n"
    "ret\n"
    ".popsection\n");

extern "C" {
void branch_1();
void branch_2();
}

/* The kernel emulates the branch. Its step over the breakpoint must end at the branch target. */
TEST("tracing.uprobe_on_branch", "C13",
     "a breakpoint at the target of a branch that a uprobe emulates is hit")
{
	if (!HITS_AFTER_EMULATED)
		unavailable("no hit after an emulated instruction, see Known issues");

	Event probe(uprobe_on(branch_1)), from(breakpoint(branch_1)), to(breakpoint(branch_2));

	for (Event *event : { &probe, &from, &to })
		event->enable();
	for (uint64_t i = 0; i < HITS; i++)
		branch_1();
	EXPECT_EQ(probe.count(), HITS, "hits of the uprobe");
	EXPECT_EQ(from.count(), HITS, "hits of the breakpoint on the branch");
	EXPECT_EQ(to.count(), HITS, "hits of the breakpoint at the target");
}

TEST("tracing.wrong_type", "C5",
     "attaching a program of another type to a tracing event fails with EINVAL")
{
	const struct {
		perf_event_attr (*attr)();
		Program wrong;
	} cases[] = {
		{ tracepoint, Program::ON_OVERFLOW },
		{ tracepoint, Program::ON_KPROBE },
		{ uprobe, Program::ON_OVERFLOW },
		{ uprobe, Program::ON_TRACEPOINT },
	};

	for (auto &c : cases) {
		Filter filter(c.wrong);
		Event event(c.attr());

		EXPECT_ERRNO(event.attach(filter), EINVAL, "attaching a program of another type");
	}
}

TEST("tracing.tracepoint_child_exit", "C5",
     "an exiting child does not detach its parent's tracepoint program")
{
	/*
	 * One child is not enough: when parent and child run after each other on a CPU, the kernel
	 * may swap their contexts, and the child then exits with the parent's event.
	 */
	constexpr uint64_t CHILDREN = 10;
	Filter filter(Program::ON_TRACEPOINT);
	Event event(inherited(tracepoint()));

	filter.returns(1);
	event.enable(filter);
	getppid_times(HITS);
	EXPECT_EQ(filter.runs(), HITS, "runs of the program before the first fork");
	for (uint64_t i = 0; i < CHILDREN; i++) {
		EXPECT_STATUS(Child([] { return 0; }).wait(), 0, "the child");
		getppid_times(HITS);
	}
	EXPECT_EQ(filter.runs(), (1 + CHILDREN) * HITS,
		  "runs of the program before and after each child");
}

/* BPF_TASK_FD_QUERY of @event: returns 0 and the id of its program, or an errno. */
static int query(const Event &event, __u32 &id)
{
	__u32 length = 0, type;
	__u64 offset, addr;

	id = 0;
	return -bpf_task_fd_query(gettid(), event.fd(), 0, nullptr, &length, &id, &type, &offset,
				  &addr);
}

/* The kprobe is in a kernel function that the program on the breakpoint calls to read its event. */
TEST("tracing.kprobe.nested", "C5",
     "a kprobe program does not run inside another BPF program, and its hit is filtered out")
{
	const perf_event_attr in_program = kprobe_on("perf_event_read_local");

	/* 5.10 builds kernel/events/core.c without ftrace. */
	Event(kprobe()).close();
	if (!open_event(in_program).valid() && errno == EINVAL)
		unavailable(
			"the kernel refuses kprobe events in functions that ftrace cannot trace");

	Filter filter(Program::LOOKS), tracing(Program::ON_KPROBE);
	Event event(breakpoint(hit)), probe(in_program);

	tracing.returns(1);
	event.must_attach(filter);
	event.enable();
	probe.enable();
	hit_times(HITS);
	EXPECT_EQ(probe.count(), HITS, "hits of the kprobe without a program");
	probe.must_attach(tracing);
	hit_times(HITS);
	EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program on the breakpoint");
	EXPECT_EQ(tracing.runs(), 0, "runs of the program on the kprobe");
	EXPECT_EQ(probe.count(), HITS, "hits of the kprobe, not including misses");
}

/* The program must not run: the task may hold the lock of a map that the program uses. */
static void check_kprobe_in_bpf()
{
	Filter tracing(Program::ON_KPROBE);
	Event probe(kprobe_on("htab_map_update_elem"));
	Fd map(bpf_map_create(BPF_MAP_TYPE_HASH, nullptr, sizeof(int), sizeof(int), 1, nullptr));
	const auto update = [&] {
		for (int i = 0, key = 0; i < int(HITS); i++)
			if (bpf_map_update_elem(map.get(), &key, &i, BPF_ANY))
				setup_failed("bpf_map_update_elem", errno);
	};

	if (!map.valid())
		setup_failed("bpf_map_create", errno);
	tracing.returns(1);
	probe.enable();
	update();
	EXPECT_EQ(probe.count(), HITS, "hits of the kprobe without a program");
	probe.must_attach(tracing);
	update();
	EXPECT_EQ(tracing.runs(), 0, "runs of the program");
	EXPECT_EQ(probe.count(), HITS, "hits of the kprobe, not including misses");
}

TEST_OF("tracing.kprobe.in_bpf", "C5",
	"a kprobe program does not run while its task is in bpf(), and its hit is filtered out",
	check_kprobe_in_bpf())

TEST_OF("tracing.kprobe.in_bpf.thread", "C5",
	"a kprobe program does not run in a thread that is in bpf(), even if the first thread of "
	"the process is not",
	std::thread(check_kprobe_in_bpf).join())

TEST("tracing.query", "C5",
     "BPF_TASK_FD_QUERY returns the program of a tracepoint event, and EOPNOTSUPP for a breakpoint")
{
	Filter tracing(Program::ON_TRACEPOINT), filter;
	Event on_trace(tracepoint()), on_hit(breakpoint(hit));
	__u32 id;

	for (const Event *event : { &on_trace, &on_hit })
		EXPECT_ERRNO(query(*event, id), ENOENT, "querying an event without a program");
	on_trace.must_attach(tracing);
	on_hit.must_attach(filter);
	EXPECT_ERRNO(query(on_trace, id), 0, "querying a tracepoint event");
	EXPECT_VALUE(id, info_of_program(tracing.prog_fd()).id,
		     "program id of the tracepoint event");
	EXPECT_ERRNO(query(on_hit, id), EOPNOTSUPP, "querying a breakpoint");
}

TEST("tracing.query.probe", "C5",
     "BPF_TASK_FD_QUERY returns the program of a kprobe event and of a uprobe event")
{
	for (perf_event_attr (*attr)() : { kprobe, uprobe }) {
		Filter filter(Program::ON_KPROBE);
		Event event(attr());
		__u32 id = 0;

		EXPECT_ERRNO(query(event, id), ENOENT, "querying an event without a program");
		event.must_attach(filter);
		EXPECT_ERRNO(query(event, id), 0, "querying an event with a program");
		EXPECT_VALUE(id, info_of_program(filter.prog_fd()).id, "program id");
	}
}

TEST("tracing.tracepoint_gone", "C8", "a tracepoint program is freed with its event or its link")
{
	for (bool by_link : { false, true }) {
		__u32 id = 0;
		{
			Filter filter(Program::ON_TRACEPOINT);
			Event event(tracepoint());
			Fd link;

			if (by_link && filter.can_link())
				link = filter.link(event);
			else
				event.must_attach(filter);
			id = info_of_program(filter.prog_fd()).id;
		}
		EXPECT_TRUE(wait_until_freed(id), "the program is freed");
	}
}

TEST("tracing.tracepoint_detach", "C5",
     "closing the link detaches a tracepoint program, and no concurrent hit is lost")
{
	constexpr uint64_t BATCHES = 200, LEAST = 20;
	constexpr int SECONDS = 16;
	uint64_t lost = 0;
	Filter filter(Program::ON_TRACEPOINT);
	Event event(tracepoint());
	Ring ring(event);
	Fd link = filter.link(event);

	event.enable();
	getppid_times(HITS);
	EXPECT_EQ(filter.runs(), HITS, "runs of the program before the link is closed");
	EXPECT_EQ(event.count(), 0, "hits counted while all are rejected");
	link.close();
	getppid_times(HITS);
	EXPECT_EQ(filter.runs(), HITS, "runs of the program after the link is closed");
	EXPECT_EQ(event.count(), HITS, "hits counted after the link is closed");

	filter.returns(1);
	ring.drain();

	std::atomic<bool> stop = false;
	std::atomic<uint64_t> detached = 0;
	std::thread detaching([&] {
		for (; !stop; detached++)
			filter.link(event).close();
	});
	uint64_t batches = 0;
	const Bound bound(SECONDS, UINT64_MAX, LEAST);

	for (; !lost && (batches < BATCHES || !bound.reached(0, detached)); batches++) {
		ring.forget();
		getppid_times(HITS);
		ring.drain();
		lost += HITS - ring.samples();
	}
	stop = true;
	detaching.join();
	bound.met(detached, "detaches during the race", lost);
	EXPECT_EQ(lost, 0, "hits lost");
	EXPECT_EQ(event.count(), (1 + batches) * HITS, "hits counted");
}
