// SPDX-License-Identifier: GPL-2.0
/* The rights that a filter requires and grants: C15. */
#include <fcntl.h>
#include <setjmp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <string>
#include <vector>

#include "lib/arch.h"
#include "lib/gate.h"
#include "lib/kernel.h"
#include "lib/program.h"
#include "lib/rights.h"
#include "lib/sysctl.h"
#include "tests/common.h"

/* --- rights that are required, by capabilities and perf_event_paranoid --- */

static int open_it(perf_event_attr attr, pid_t pid, int cpu)
{
	return open_event(attr, pid, cpu).valid() ? 0 : errno;
}

static volatile uint64_t watched;

/* A watchpoint that also counts writes by the kernel. */
static perf_event_attr of_kernel_hits()
{
	perf_event_attr attr = breakpoint(Access::WRITE, &watched, sizeof(watched));

	attr.exclude_kernel = 0;
	return attr;
}

static perf_event_attr in_kernel()
{
	perf_event_attr attr = of_kernel_hits();

	attr.bp_addr = 0xffff'ffff'8100'0000;
	return attr;
}

/* The objects that root prepares for the process that tries an action. */
struct Scene {
	const Filter &filter;
	const Event &event; /* to which a process that has the descriptor can attach */
	pid_t root_task, user_task; /* tasks of the two users */
};

constexpr int NEVER = 4, ALWAYS = -2; /* as levels of perf_event_paranoid */

/*
 * An action and the rights that it requires: any process may do it if perf_event_paranoid is below
 * @refused_from; otherwise it requires all capabilities of one of the sets in @capability_sets.
 */
static const struct Right {
	const char *name, *says;
	int (*act)(const Scene &scene); /* 0 or errno */
	int refused_from;
	std::vector<uint64_t> capability_sets;
	bool opens; /* it opens an event, which Debian restricts at level 3 */
} rights[] = {
	{ "open",
	  "any user may open a breakpoint on its own task",
	  [](auto &) { return open_it(breakpoint(hit), 0, -1); },
	  NEVER,
	  {},
	  true },
	{ "open_kernel_hits",
	  "counting hits in kernel mode requires perf_event_paranoid below 2 or CAP_PERFMON",
	  [](auto &) { return open_it(of_kernel_hits(), 0, -1); },
	  2,
	  { PERFMON, ADMIN },
	  true },
	{ "open_kernel_address",
	  "a breakpoint at a kernel address requires CAP_SYS_ADMIN",
	  /* Per CPU, because arm64 has no task breakpoints in the kernel. */
	  [](auto &) { return open_it(in_kernel(), -1, usable_cpus().front()); },
	  ALWAYS,
	  { ADMIN },
	  true },
	{ "open_cpu",
	  "a CPU-wide breakpoint requires perf_event_paranoid below 1 or CAP_PERFMON",
	  [](auto &) { return open_it(breakpoint(hit), -1, usable_cpus().front()); },
	  1,
	  { PERFMON, ADMIN },
	  true },
	{ "open_same_user",
	  "a breakpoint on another task of the same user requires no capability",
	  [](auto &scene) { return open_it(breakpoint(hit), scene.user_task, -1); },
	  NEVER,
	  {},
	  true },
	{ "open_other_user",
	  "a breakpoint on a task of another user requires CAP_PERFMON",
	  [](auto &scene) { return open_it(breakpoint(hit), scene.root_task, -1); },
	  ALWAYS,
	  { PERFMON, ADMIN },
	  true },
	{ "open_other_user_sigtrap",
	  "a breakpoint with attr.sigtrap on a task of another user also requires CAP_KILL",
	  [](auto &scene) {
		  if (!has_sigtrap())
			  unavailable("the kernel has no attr.sigtrap (it came with 5.13)");
		  return open_it(with_sigtrap(breakpoint(hit)), scene.root_task, -1);
	  },
	  ALWAYS,
	  { PERFMON | KILL, ADMIN | KILL },
	  true },
	{ "load",
	  "loading a program requires CAP_BPF and CAP_PERFMON",
	  [](auto &) { return try_least(0).valid() ? 0 : errno; },
	  ALWAYS,
	  { PERFMON | BPF, ADMIN },
	  false },
	{ "attach",
	  "attaching a program by ioctl requires only the descriptors of event and program",
	  [](auto &scene) { return scene.event.attach(scene.filter); },
	  NEVER,
	  {},
	  false },
	{ "link",
	  "attaching a program by link requires only the descriptors of event and program",
	  [](auto &scene) {
		  if (!scene.filter.can_link())
			  unavailable("the kernel has no BPF links for perf events");
		  return create_link(scene.filter.prog_fd(), scene.event).valid() ? 0 : errno;
	  },
	  NEVER,
	  {},
	  false },
};

static const struct Caller {
	const char *name;
	uint64_t capabilities;
} callers[] = {
	{ "an empty set of capabilities", 0 },
	{ "CAP_BPF", BPF },
	{ "CAP_PERFMON", PERFMON },
	{ "CAP_PERFMON and CAP_BPF", PERFMON | BPF },
	{ "CAP_PERFMON and CAP_KILL", PERFMON | KILL },
	{ "CAP_SYS_ADMIN", ADMIN },
};

static bool allowed(const Right &right, uint64_t capabilities, int level, bool level_3)
{
	if (right.opens && level_3 && level >= 3 && !(capabilities & ADMIN))
		return false;
	if (level < right.refused_from)
		return true;
	return std::any_of(right.capability_sets.begin(), right.capability_sets.end(),
			   [&](uint64_t set) { return (capabilities & set) == set; });
}

static int tried(const Right &right, const Scene &scene, uint64_t capabilities)
{
	return exit_code(Child([&] {
				 become(NOBODY, capabilities);
				 return right.act(scene);
			 }).wait());
}

static void check_right(const Right &right)
{
	Pipe ready;
	Child user_task([&] {
		become(NOBODY, 0);
		ready = Pipe();
		return pause();
	});
	char byte;

	ready.in.close();
	if (read(ready.out.get(), &byte, 1) < 0)
		setup_failed("read", errno);

	Filter filter;
	Sysctl paranoid("kernel/perf_event_paranoid");

	/* Try as root first: if something is unavailable, the test must be skipped here. */
	{
		Event event(breakpoint(hit));

		right.act({ filter, event, getpid(), user_task.pid() });
		paranoid.set(3);
	}

	/* Debian kernels have a level at which opening any event requires CAP_SYS_ADMIN. */
	const bool level_3 = Child([] {
				     become(NOBODY, 0);
				     return open_it(breakpoint(hit), 0, -1);
			     }).wait() != 0;

	for (int level = -1; level <= 3; level++) {
		paranoid.set(level);
		for (auto &caller : callers) {
			Event event(breakpoint(hit));
			int err = tried(right, { filter, event, getpid(), user_task.pid() },
					caller.capabilities);
			std::string what = std::string(caller.name) +
					   " suffices at perf_event_paranoid " +
					   std::to_string(level);

			EXPECT_VALUE(!err, allowed(right, caller.capabilities, level, level_3),
				     what.c_str());
			if (err && err != EACCES && err != EPERM)
				fail("expected EACCES or EPERM, got %s: %s",
				     errno_name(err).c_str(), what.c_str());
		}
	}
}

static const bool added_rights = [] {
	for (const Right &right : rights)
		add_test({ std::string("rights.") + right.name, "C15", right.says,
			   [&right] { check_right(right); } });
	return true;
}();

/* --- rights that are granted: none that the process would not have without a filter --- */

/*
 * Runs @body in an unprivileged process with perf_event_paranoid set to @level; at level 2 users
 * cannot monitor the kernel. Programs must be loaded before, as root.
 */
template <typename Body> static void without_rights(Body body, int level = 2)
{
	Sysctl paranoid("kernel/perf_event_paranoid");

	paranoid.set(level);

	int status = Child([&] {
			     become(NOBODY, 0);
			     body();
			     return 0;
		     }).wait();

	EXPECT_STATUS(status, 0, "the unprivileged process");
}

static constexpr Verdict verdicts[] = {
	{ false, 0 }, { true, 0 }, { true, 1 }, { true, UINT32_MAX }
};

TEST("rights.effects", "C15",
     "a filter adds no sample, signal or count that the event would not have without it")
{
	Filter filter;

	without_rights([&] {
		for (auto &verdict : verdicts) {
			Signals signals({ SETSIG, SIGTRAP });
			Event event(with_sigtrap(breakpoint(hit), has_sigtrap()));
			Ring ring(event);

			event.async(SETSIG, gettid());
			enable(event, filter, verdict);
			hit_times(HITS);
			ring.drain();

			/* Stock kernels send a signal for each rejected hit, but not more. */
			const bool rejected = !verdict.delivers();
			const uint64_t traps = has_sigtrap() ? HITS : 0;

			EXPECT_EQ(event.count(), HITS, "hits counted");
			EXPECT_EQ(ring.samples(), rejected ? 0 : HITS, "samples");
			EXPECT_LE(Signals::count(SETSIG), HITS, "signals");
			EXPECT_LE(Signals::count(SIGTRAP), traps, "SIGTRAPs");
			if (!rejected) {
				EXPECT_EQ(Signals::count(SETSIG), HITS, "signals");
				EXPECT_EQ(Signals::count(SIGTRAP), traps, "SIGTRAPs");
			}
		}
	});
}

TEST("rights.signals", "C15", "the signals of a filtered event reach no process of another user")
{
	const pid_t root = gettid();
	Filter filter;
	Signals signals({ SETSIG });

	without_rights([&] {
		for (pid_t owner : { root, gettid() }) {
			for (auto &verdict : verdicts) {
				Signals mine({ SETSIG });
				Event event(breakpoint(hit));

				event.async(SETSIG, owner);
				enable(event, filter, verdict);
				hit_times(HITS);
				/* The signals of rejected hits are the subject of rule C1. */
				if (verdict.delivers())
					EXPECT_EQ(Signals::count(SETSIG), owner == root ? 0 : HITS,
						  "signals to the unprivileged process");
			}
		}
	});
	EXPECT_EQ(Signals::count(SETSIG), 0, "signals to root");
}

/* The kernel checks the rights to send a signal at each hit: sigio_perm() in fs/fcntl.c. */
TEST("rights.signals.owner", "C15",
     "a filtered event sends no signal to its owner after the owner has changed to another user")
{
	constexpr uid_t OTHER_USER = NOBODY - 1; /* no privileges, no account needed */

	need_root();

	Filter filter;

	for (auto &verdict : verdicts) {
		auto &received = shared_with_children<std::atomic<uint64_t>>();
		Gate ready, change, changed, end;
		Child owner([&] {
			Signals signals({ SETSIG });

			become(NOBODY, cap(CAP_SETUID) | cap(CAP_SETGID));
			ready.open();
			change.pass();
			received = Signals::count(SETSIG);
			become(OTHER_USER, 0);
			changed.open();
			end.pass();
			return int(Signals::count(SETSIG) - received);
		});

		ready.pass();
		without_rights([&] {
			Event event(breakpoint(hit));

			event.async(SETSIG, F_OWNER_PID, owner.pid());
			enable(event, filter, verdict);
			hit_times(HITS);
			change.open();
			changed.pass();
			hit_times(HITS);
			EXPECT_EQ(event.count(), 2 * HITS, "hits counted");
		});
		end.open();
		EXPECT_STATUS(owner.wait(), 0, "the owner, which received no further signal");
		/* The signals of rejected hits are the subject of rule C1. */
		if (verdict.delivers())
			EXPECT_EQ(received, HITS, "signals before the change");
	}
}

/* This process writes @times, and so does the kernel. */
static void write_twice(uint64_t times)
{
	for (uint64_t i = 0; i < times; i++) {
		watched = i;
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &watched);
	}
}

static bool in_user_space(uint64_t address)
{
	return !(address >> 63);
}

TEST("rights.kernel_hits", "C15", "a program does not run on hits that its event excludes")
{
	need_kernel_hits();

	Filter filter(Program::LOOKS);

	filter.returns(1);

	/* As root the program sees hits in kernel mode. */
	{
		Event event(of_kernel_hits());

		event.enable(filter);
		write_twice(HITS);
		/* At least, because the kernel may write byte by byte. */
		EXPECT_GE(filter.runs(), 2 * HITS,
			  "runs of the program, hits in kernel mode included");
		EXPECT_FALSE(in_user_space(filter.snapshot().ip), "the last hit was in user mode");
	}

	const uint64_t before = filter.runs();

	without_rights([&] {
		Event event(breakpoint(Access::WRITE, &watched, sizeof(watched)));
		Ring ring(event);

		event.enable(filter);
		write_twice(HITS);
		ring.drain();
		EXPECT_EQ(event.count(), HITS, "hits counted");
		EXPECT_EQ(filter.runs() - before, HITS, "runs of the program");
		EXPECT_TRUE(in_user_space(filter.snapshot().ip), "the last hit was in user mode");
		EXPECT_EQ(ring.samples(), HITS, "samples");
	});
}

/*
 * Returns how often the program of a task clock sees a kernel address, in a task that is often in
 * the kernel.
 */
static uint64_t kernel_addresses(const Filter &filter, bool exclude_kernel)
{
	constexpr int ROUNDS = 400;
	static char buffer[1 << 18];
	Fd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
	perf_event_attr attr = software(PERF_COUNT_SW_TASK_CLOCK, 200'000);
	uint64_t seen = 0;

	attr.exclude_kernel = exclude_kernel;
	attr.exclude_hv = 1;

	Event event(attr);
	const uint64_t runs = filter.runs();

	event.enable(filter);
	for (int i = 0; i < ROUNDS; i++) {
		if (read(zero.get(), buffer, sizeof(buffer)) < 0)
			setup_failed("read of /dev/zero", errno);
		for (int spin = 0; spin < 20'000; spin++)
			asm volatile("");
		if (filter.runs() > runs)
			seen += !in_user_space(filter.snapshot().ip);
	}
	EXPECT_GT(filter.runs(), runs, "runs of the program");
	return seen;
}

TEST("rights.kernel_registers", "C15",
     "a program does not see the registers of a mode that its event excludes")
{
	Filter filter(Program::LOOKS);

	EXPECT_GT(kernel_addresses(filter, false), 0, "kernel addresses seen by root's program");
	without_rights([&] {
		EXPECT_EQ(kernel_addresses(filter, true), 0,
			  "kernel addresses seen without rights");
	});
}

TEST("rights.modify", "C15",
     "MODIFY_ATTRIBUTES requires the rights that opening the modified event requires")
{
	Filter filter;

	filter.returns(1);
	for (int level : { 1, 2 }) {
		const uint64_t before = filter.runs();

		without_rights(
			[&] {
				perf_event_attr attr = breakpoint(hit), moved;

				/* At level 1 users may count hits in kernel mode. */
				attr.exclude_kernel = level > 1;
				Event event(attr);

				event.enable(filter);
				moved = attr;
				moved.bp_addr = in_kernel().bp_addr;
				EXPECT_VALUE(
					ioctl(event.fd(), PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &moved),
					-1,
					"return value of moving the breakpoint into the kernel");
				event.enable();
				hit_times(HITS);
				EXPECT_EQ(event.count(), HITS, "hits at the old address");
				EXPECT_EQ(filter.runs() - before, HITS, "runs of the program");
			},
			level);
	}
}

TEST("rights.modify.enabled", "C9", "an event stays enabled if MODIFY_ATTRIBUTES is refused")
{
	without_rights(
		[&] {
			perf_event_attr attr = breakpoint(hit);

			attr.disabled = 0;

			Event event(attr);

			attr.bp_addr = in_kernel().bp_addr;
			EXPECT_VALUE(ioctl(event.fd(), PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr), -1,
				     "return value of moving the breakpoint into the kernel");
			hit_times(HITS);
			EXPECT_EQ(event.count(), HITS, "hits at the old address");
		},
		2);
}

constexpr int RETURNED = 1 << 7; /* set in a valid exit code */
static uint64_t jump_target, revealed;
static sigjmp_buf after_fault;

/*
 * A signal handler returns to @address in the kernel, with the flag of a hit set in its frame.
 * Returns the flag in the frame of the SIGSEGV that follows, and RETURNED.
 */
static int revealed_at(uint64_t address)
{
	const Handler jumps(SIGUSR1, [](int, siginfo_t *, void *context) {
		pc_of(*static_cast<ucontext_t *>(context)) = jump_target;
		flags_of(*static_cast<ucontext_t *>(context)) |= HIT_FLAGS;
	});
	const Handler fails(SIGSEGV, [](int, siginfo_t *, void *context) {
		revealed = flags_of(*static_cast<ucontext_t *>(context)) & HIT_FLAGS;
		siglongjmp(after_fault, 1);
	});

	jump_target = address;
	if (!sigsetjmp(after_fault, 1)) {
		raise(SIGUSR1);
		fail("expected SIGSEGV, got none: executing kernel address %#lx", address);
	}
	return RETURNED | revealed >> 16;
}

TEST("rights.kernel_breakpoint", "C15",
     "a signal frame does not reveal where the kernel has breakpoints")
{
	const uint64_t text = kernel_address_of("send_sigio");
	perf_event_attr executed = breakpoint(hit), written = in_kernel();

	if (!text || !kernel_address_of("register_kprobe"))
		unavailable("no breakpoints in the kernel's text (CONFIG_KPROBES), or no kallsyms");
	executed.bp_addr = text;
	executed.exclude_kernel = 0;
	run_on(usable_cpus().front());

	const auto reveal = [&] {
		return exit_code(Child([&] {
					 become(NOBODY, 0);
					 return revealed_at(text);
				 }).wait());
	};
	const int nothing = reveal();

	EXPECT_TRUE(nothing & RETURNED, "the process returned from the kernel address");
	for (const perf_event_attr &attr : { executed, written }) {
		Event event(attr, -1, usable_cpus().front());

		event.enable();
		EXPECT_HEX(reveal(), nothing, "what the signal frame reveals");
	}
}

TEST("rights.breakpoint_of_others", "C15",
     "a signal frame does not reveal a breakpoint of another user at its address, except by RF on "
     "x86")
{
	static uint64_t &in_frame = shared_with_children<uint64_t>();
	static std::atomic<int> signals;

	need_root();
	run_on(usable_cpus().front());

	Gate watched;
	Child child([&] {
		const Handler handler(SIGUSR1, [](int, siginfo_t *, void *context) {
			in_frame |= flags_of(*static_cast<ucontext_t *>(context)) & HIT_FLAGS;
			signals++;
		});

		become(NOBODY, 0);
		watched.pass();
		hit_times(1);
		return int(signals);
	});
	Event event(breakpoint(hit), -1, usable_cpus().front());

	/* The signal of the event arrives at the hit, as any other signal could. */
	event.async(SIGUSR1, child.pid());
	event.enable();
	watched.open();
	EXPECT_STATUS(child.wait(), W_EXITCODE(1, 0),
		      "the child, whose exit code is its number of signals");
	EXPECT_HEX(in_frame, SIGRETURN_RESTORES_HIT_FLAGS ? HIT_FLAGS : 0,
		   "what the signal frame reveals");
}
