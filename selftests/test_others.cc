// SPDX-License-Identifier: GPL-2.0
/* What must stay as it is: tracepoints and kprobes (C5), throttling (C4), ptrace (C12). */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>

#include "effects.h"
#include "harness.h"
#include "perf.h"

/* The number in a one-line file, or -1. */
static long number_in(const char *path)
{
	char text[32] = {};
	Fd fd(open(path, O_RDONLY | O_CLOEXEC));

	if (!fd.valid() || read(fd.get(), text, sizeof(text) - 1) <= 0)
		return -1;
	return strtol(text, nullptr, 10);
}

/* Hits of the events below. */
static void getppid_times(uint64_t times)
{
	for (uint64_t i = 0; i < times; i++)
		syscall(SYS_getppid);
}

static perf_event_attr tracing_event(uint32_t type)
{
	perf_event_attr attr = {};

	attr.type = type;
	attr.size = sizeof(attr);
	attr.sample_period = 1;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.disabled = 1;
	return attr;
}

static perf_event_attr tracepoint()
{
	static constexpr char tracefs[] = "/sys/kernel/tracing";
	static constexpr char id_file[] =
		"/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id";
	perf_event_attr attr = tracing_event(PERF_TYPE_TRACEPOINT);
	long id = number_in(id_file);

	/* Where nobody has mounted it, for this test alone. */
	if (id < 0 && access("/sys/kernel/tracing/events", F_OK)) {
		if (unshare(CLONE_NEWNS) ||
		    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) ||
		    mount("tracefs", tracefs, "tracefs", 0, nullptr))
			unavailable("no tracefs");
		id = number_in(id_file);
	}
	if (id < 0)
		unavailable("no syscall tracepoints (CONFIG_FTRACE_SYSCALLS)");
	attr.config = id;
	return attr;
}

static perf_event_attr kprobe()
{
#ifdef __x86_64__
	static const char symbol[] = "__x64_sys_getppid";
#else
	static const char symbol[] = "__arm64_sys_getppid";
#endif
	long type = number_in("/sys/bus/event_source/devices/kprobe/type");

	if (type < 0)
		unavailable("no kprobe events (CONFIG_KPROBE_EVENTS)");

	perf_event_attr attr = tracing_event(type);

	attr.kprobe_func = reinterpret_cast<uintptr_t>(symbol);
	return attr;
}

/*
 * trace_call_bpf() runs the program before the event is counted, and what it returns filters the
 * hit as a whole. If the overflow ran it again, there would be two runs a hit.
 */
static void check_tracing(const perf_event_attr &attr, Program which, bool accept)
{
	Filter filter(which);
	Event event(attr);
	Ring ring(event);

	filter.returns(accept);
	event.must_attach(filter);
	event.enable();
	getppid_times(HITS);
	event.disable();
	ring.drain();
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(event.count(), accept ? HITS : 0, "hits counted");
	EXPECT_EQ(ring.samples(), accept ? HITS : 0, "samples");
}

TEST("others.tracepoint.rejected", "C5", "a tracepoint program filters hits and runs once a hit")
{
	check_tracing(tracepoint(), Program::ON_TRACEPOINT, false);
}

TEST("others.tracepoint.accepted", "C5", "a tracepoint program that accepts runs once a hit")
{
	check_tracing(tracepoint(), Program::ON_TRACEPOINT, true);
}

TEST("others.kprobe.rejected", "C5", "a kprobe program filters hits and runs once a hit")
{
	check_tracing(kprobe(), Program::ON_KPROBE, false);
}

TEST("others.kprobe.accepted", "C5", "a kprobe program that accepts runs once a hit")
{
	check_tracing(kprobe(), Program::ON_KPROBE, true);
}

TEST("others.tracepoint_child_exit", "C5", "an exiting child takes no program from its parent")
{
	/*
	 * One child might not tell: when parent and child follow each other on a CPU the kernel may
	 * swap their event contexts, and then the child exits with the event that is not a copy.
	 */
	constexpr uint64_t CHILDREN = 10;
	perf_event_attr attr = tracepoint();
	Filter filter(Program::ON_TRACEPOINT);

	attr.inherit = 1;

	Event event(attr);

	filter.returns(1);
	event.must_attach(filter);
	event.enable();
	getppid_times(HITS);
	EXPECT_EQ(filter.runs(), HITS, "runs before the first fork");
	for (uint64_t i = 0; i < CHILDREN; i++) {
		EXPECT_EQ(Child([] { return 0; }).wait(), 0, "exit of the child");
		getppid_times(HITS);
	}
	EXPECT_EQ(filter.runs(), (1 + CHILDREN) * HITS, "runs before and after each child");
}

TEST("others.no_throttle", "C4", "a lone breakpoint is not throttled, however often it is hit")
{
	constexpr uint64_t MANY = 20000;
	Filter filter;
	Event event(breakpoint(hit));
	Ring ring(event);

	event.must_attach(filter);
	event.enable();
	for (uint64_t i = 0; i < MANY; i++)
		hit(i);
	ring.drain();
	EXPECT_EQ(event.count(), MANY, "hits counted");
	EXPECT_EQ(filter.runs(), MANY, "runs of the program");
	EXPECT_EQ(ring.records(PERF_RECORD_THROTTLE), 0, "throttle records");
	EXPECT_EQ(ring.records(PERF_RECORD_UNTHROTTLE), 0, "unthrottle records");
	EXPECT_EQ(ring.samples(), 0, "samples");
}

#ifdef __x86_64__
static unsigned long debug_register(int n)
{
	return offsetof(struct user, u_debugreg) + n * sizeof(long);
}

TEST("others.ptrace", "C12", "ptrace's breakpoint stops its tracee beside a filtered one")
{
	constexpr unsigned long DR7_LOCAL_0_EXECUTE = 1, DR6_TRAP_0 = 1;
	Filter filter;
	Child tracee([] {
		ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
		raise(SIGSTOP);
		for (uint64_t i = 0; i < HITS; i++) {
			hit(i);
			hit_other(i);
		}
		return 0;
	});
	int status = tracee.wait();
	pid_t pid = tracee.pid();

	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP)
		fail("the tracee did not stop: wait status %#x", status);
	if (ptrace(PTRACE_POKEUSER, pid, debug_register(0), hit_other) ||
	    ptrace(PTRACE_POKEUSER, pid, debug_register(7), DR7_LOCAL_0_EXECUTE))
		setup_failed("PTRACE_POKEUSER u_debugreg", errno);

	Event event(breakpoint(hit), pid);
	Ring ring(event);
	uint64_t stops = 0;

	event.must_attach(filter);
	event.enable();
	for (;;) {
		ptrace(PTRACE_CONT, pid, nullptr, nullptr);
		status = tracee.wait();
		if (!WIFSTOPPED(status))
			break;
		stops += WSTOPSIG(status) == SIGTRAP &&
			 ptrace(PTRACE_PEEKUSER, pid, debug_register(6), nullptr) & DR6_TRAP_0;
	}
	ring.drain();
	EXPECT_EQ(status, 0, "exit of the tracee");
	EXPECT_EQ(stops, HITS, "stops at ptrace's breakpoint");
	EXPECT_EQ(event.count(), HITS, "hits of the filtered breakpoint");
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(ring.samples(), 0, "samples");
}
#endif
