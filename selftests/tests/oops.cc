// SPDX-License-Identifier: GPL-2.0
/*
 * Kernel bugs that the fuzzer found: C8, C15. Any user can trigger them with breakpoints and other
 * events, except those about the query and the PMU, which require rights or BPF.
 */
#include <bpf/bpf.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "harness/race.h"
#include "lib/kernel.h"
#include "lib/pmu.h"
#include "lib/program.h"
#include "tests/common.h"
#include "tests/meanwhile.h"
#include "tests/tracing.h"

static constexpr int SECONDS = 6;
static volatile uint64_t word;

static perf_event_attr on_word()
{
	return breakpoint(Access::WRITE, &word, sizeof(word));
}

/*
 * Fails the test if @done does not change for some seconds, or if @met, the number of @things, does
 * not reach @least. Tasks in a deadlock cannot be killed, so this does not wait for them.
 */
static void expect_progress(const std::atomic<uint64_t> &done, const std::atomic<uint64_t> &met,
			    uint64_t least, const char *things)
{
	constexpr int STALL_SECONDS = 4;
	uint64_t before = 0;

	const Bound bound(SECONDS, UINT64_MAX, least);

	for (int stalled = 0; stalled || !bound.reached(0, met);) {
		sleep(1);
		stalled = done == before ? stalled + 1 : 0;
		before = done;
		if (stalled == STALL_SECONDS)
			fail("expected progress, got none for %d s after %lu rounds: a deadlock",
			     STALL_SECONDS, before);
	}
	note("%lu rounds", done.load());
	bound.met(met, things);
}

/*
 * PR_TASK_PERF_EVENTS_DISABLE takes current->perf_event_mutex and then ctx->mutex of each event.
 * PERF_EVENT_IOC_MODIFY_ATTRIBUTES holds ctx->mutex and, if the type of the breakpoint changes,
 * takes a mutex of the breakpoint's task.
 */
TEST("oops.modify_disable", "C15",
     "MODIFY_ATTRIBUTES and PR_TASK_PERF_EVENTS_DISABLE in one process do not deadlock")
{
	constexpr uint64_t LEAST = 5600;
	auto &disabled = shared_with_children<std::atomic<uint64_t>>();
	auto &modified = shared_with_children<std::atomic<uint64_t>>();
	Child child([&] {
		perf_event_attr attr = on_word();
		Event event(attr);

		std::thread([&] {
			for (;; modified++) {
				attr.bp_type ^= HW_BREAKPOINT_R;
				event.modify(attr);
			}
		}).detach();
		for (;; disabled++)
			if (prctl(PR_TASK_PERF_EVENTS_DISABLE))
				setup_failed("PR_TASK_PERF_EVENTS_DISABLE", errno);
		return 0;
	});

	expect_progress(disabled, modified, LEAST, "modifications");
}

static const char self[] = "/proc/self/exe", again[] = "again";

/* Executes the program again before main(), see exec_forever(). */
__attribute__((constructor)) static void exec_again(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[0], self) && !strcmp(argv[1], again))
		execv(self, argv);
}

static int exec_forever()
{
	return execl(self, self, again, nullptr);
}

/* Opens an event on a task, which requires no rights. The exec() of the task removes it. */
static Fd until_exec(pid_t pid)
{
	perf_event_attr attr = software(PERF_COUNT_SW_DUMMY);

	attr.disabled = 0;
	attr.remove_on_exec = 1;
	attr.exclude_kernel = attr.exclude_hv = 1;

	Fd fd = open_event(attr, pid);

	if (!fd.valid() && (errno == EINVAL || errno == E2BIG))
		unavailable("the kernel has no attr.remove_on_exec (it came with 5.13)");
	return fd;
}

/*
 * perf_event_open() adds the event to its owner's list after it has released the context and the
 * exec_update_lock of the event's task, which may be in exec() by then.
 */
TEST("oops.remove_on_exec.opened", "C15",
     "opening an event with remove_on_exec on a task in exec() is safe")
{
	constexpr uint64_t LEAST = 20;
	const Bound bound(SECONDS, UINT64_MAX, LEAST);
	uint64_t opened = 0;
	Child child(exec_forever);

	while (!bound.reached(0, opened))
		opened += until_exec(child.pid()).valid();
	bound.met(opened, "events opened on the child");
}

/* Like oops.modify_disable, but here exec() holds ctx->mutex. */
TEST("oops.remove_on_exec.disabled", "C15",
     "PR_TASK_PERF_EVENTS_DISABLE does not deadlock with an exec() that removes one of the events")
{
	constexpr uint64_t LEAST = 20;

	until_exec(0); /* skips the test here if the attribute is missing */

	auto &disabled = shared_with_children<std::atomic<uint64_t>>();
	auto &opened = shared_with_children<std::atomic<uint64_t>>();
	Child owner([&] {
		Fd others[50];

		/* They precede the event in the list, so that it takes longer to walk the list. */
		for (auto &other : others)
			other = until_exec(0);

		Child child(exec_forever);

		for (;;) {
			/*
			 * Open the event while the child is stopped: the test above covers opening
			 * it during exec().
			 */
			kill(child.pid(), SIGSTOP);
			waitpid(child.pid(), nullptr, WUNTRACED);

			Fd fd = until_exec(child.pid());

			opened += fd.valid();
			kill(child.pid(), SIGCONT);
			for (clock_t begun = clock(); clock() - begun < CLOCKS_PER_SEC / 100;
			     disabled++)
				prctl(PR_TASK_PERF_EVENTS_DISABLE);
		}
		return 0;
	});

	expect_progress(disabled, opened, LEAST, "events opened on the child");
}

/* Only interrupts may preempt the calling thread. */
static void run_first()
{
	become_realtime(1);
}

/*
 * Stops the task on @cpu before each instruction of the kernel function at @address, long enough
 * for a program without references to be freed: a breakpoint sends a signal to the calling thread,
 * which then preempts the task.
 */
[[noreturn]] static void stop_everywhere(int cpu, uint64_t address,
					 const std::atomic<uint64_t> &freed,
					 std::atomic<uint64_t> &stops)
{
	constexpr uint64_t BYTES = 64;
	const timespec not_hit = { .tv_sec = 0, .tv_nsec = 2'000'000 };
	perf_event_attr attr = breakpoint(Access::EXECUTE, nullptr, EXECUTE_LENGTH);
	const sigset_t signals = set_of({ SIGUSR1 });

	sigprocmask(SIG_BLOCK, &signals, nullptr);
	run_first();
	attr.exclude_kernel = 0;
	for (uint64_t at = 0;; at = (at + INSTRUCTION_ALIGNMENT) % BYTES) {
		attr.bp_addr = address + at;

		/* Per CPU, because arm64 has no task breakpoints in the kernel. */
		Event event(attr, -1, cpu);

		event.async(SIGUSR1, gettid());
		event.must_refresh(1);
		if (sigtimedwait(&signals, nullptr, &not_hit) < 0)
			continue;
		stops++;

		/*
		 * If the preempted task is an RCU reader, no program is freed until that task runs
		 * again: wait for a limited time.
		 */
		const clock_t begun = clock();

		for (uint64_t before = freed;
		     freed < before + 3 && clock() - begun < CLOCKS_PER_SEC;)
			;
	}
}

/* BPF_TASK_FD_QUERY reads the program of an event, whose link may be closed at any time. */
TEST("oops.query", "C8",
     "closing a link is safe while BPF_TASK_FD_QUERY reads the program of its event")
{
	/* Five meetings per second: 28 runs of 3 s on 5.15 to 7.3 had 16 to 18. */
	constexpr uint64_t LEAST = 20;
	const Bound bound(2 * SECONDS, UINT64_MAX, LEAST);
	const uint64_t address = kernel_address_of("bpf_get_perf_event_info");
	const std::vector<int> cpus = usable_cpus();
	const pid_t tid = gettid();
	auto &links = shared_with_children<std::atomic<uint64_t>>();
	auto &stops = shared_with_children<std::atomic<uint64_t>>();

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	if (!address)
		unavailable("/proc/kallsyms has no address of bpf_get_perf_event_info()");

	Event event(on_word());

	Filter().link(event).close();

	Child closing([&] {
		run_on(cpus[1]);
		for (;; links++) {
			Fd prog = load_least(0);
			Fd link = create_link(prog.get(), event);

			/*
			 * Wait for a grace period, after which the programs of earlier rounds are
			 * freed.
			 */
			syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
		}
		return 0;
	});
	Child stopping([&] {
		run_on(cpus[0]);
		stop_everywhere(cpus[0], address, links, stops);
		return 0;
	});

	run_on(cpus[0]);
	const auto met = [&] { return std::min(links.load(), stops.load()); };

	while (!bound.reached(0, met())) {
		__u32 length = 0, id, type;
		__u64 offset, at;

		bpf_task_fd_query(tid, event.fd(), 0, nullptr, &length, &id, &type, &offset, &at);
	}
	note("%lu links, %lu stops", links.load(), stops.load());
	bound.met(met(), "stops in the kernel function and links closed");
}

TEST("oops.pmu_gone.info", "C8",
     "a link can be queried after the PMU of its event was unregistered")
{
	RemovablePmu pmu;
	Filter filter;
	bpf_link_info info = {};
	__u32 size = sizeof(info);

	pmu.register_pmu();

	Event event(pmu.counter());
	Fd link = filter.link(event);
	std::ifstream fdinfo("/proc/self/fdinfo/" + std::to_string(link.get()));

	pmu.unregister_pmu();
	if (bpf_obj_get_info_by_fd(link.get(), &info, &size))
		setup_failed("BPF_OBJ_GET_INFO_BY_FD", errno);
	EXPECT_VALUE(info.prog_id, info_of_program(filter.prog_fd()).id, "program id of the link");

	const std::string text(std::istreambuf_iterator<char>(fdinfo), {});

	EXPECT_VALUE(text.find("prog_id:\t" + std::to_string(info.prog_id)) != text.npos, true,
		     "fdinfo has the id of the program");
}

TEST("oops.pmu_gone.close", "C8",
     "a link that is closed while the PMU of its event is unregistered releases its program once")
{
	constexpr uint64_t ROUNDS = 200, LEAST = 20;
	const std::vector<int> cpus = usable_cpus();
	RemovablePmu pmu;
	Filter filter;
	const uint32_t id = info_of_program(filter.prog_fd()).id;
	uint64_t met = 0;

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	run_on(cpus[0]);

	const Bound bound(0, 0, LEAST);

	for (uint64_t i = 0; (i < ROUNDS || !bound.reached(0, met)) && program_exists(id); i++) {
		pmu.register_pmu();

		Event event(pmu.counter());
		Fd link = filter.link(event);
		std::atomic<bool> gone = false;
		std::thread unregistering([&] {
			run_on(cpus[1]);
			pmu.unregister_pmu();
			gone = true;
		});

		/* POLLERR is set right before the kernel detaches the program. */
		for (pollfd state = { event.fd(), 0, 0 }; !(state.revents & POLLERR) && !gone;)
			poll(&state, 1, 0);
		met += !gone;
		link.close();
		unregistering.join();
	}
	bound.met(met, "links closed while the PMU was unregistered", !program_exists(id));
	EXPECT_VALUE(program_exists(id), true, "the program still exists");
}

/*
 * A link is created, and a thread preempts BPF_LINK_CREATE right after perf_event_set_bpf_prog()
 * has given the program to the event. Meanwhile the PMU detaches the program from the event, and
 * the only descriptor of the program is closed. Without full preemption the thread runs too late,
 * and the test passes on every kernel.
 */
TEST("oops.pmu_gone.create", "C8",
     "a link that is created while the PMU of its event is unregistered keeps its program")
{
	constexpr uint64_t RETURN_PROBE = 1; /* /sys/bus/event_source/devices/kprobe/format */
	const std::vector<int> cpus = usable_cpus();
	const sigset_t signals = set_of({ SIGUSR1 });
	perf_event_attr attr = kprobe_on("perf_event_set_bpf_prog");
	RemovablePmu pmu;
	std::atomic<pid_t> preempting_tid = 0;
	std::atomic<bool> preempted = false, gone = false;

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	run_on(cpus[1]);
	sigprocmask(SIG_BLOCK, &signals, nullptr);
	pmu.register_pmu();
	attr.config = RETURN_PROBE;

	Event event(pmu.counter()), returned(attr);
	Fd prog = load_least(0);
	const uint32_t id = info_of_program(prog.get()).id;
	std::thread preempting([&] {
		run_first();
		preempting_tid = gettid();
		sigwaitinfo(&signals, nullptr);
		preempted = true;
		while (!gone)
			;
	});
	std::thread unregistering([&] {
		/* Where SRCU runs callbacks: perf_pmu_unregister() waits for them. */
		run_on(cpus[0]);
		while (!preempted)
			usleep(100);
		pmu.unregister_pmu();
		prog.close();
		gone = true;
	});

	while (!preempting_tid)
		usleep(100);
	returned.async(SIGUSR1, preempting_tid);
	returned.must_refresh(1);

	Fd link = create_link(prog.get(), event);

	preempting.join();
	unregistering.join();
	EXPECT_VALUE(link.valid(), true, "BPF_LINK_CREATE succeeds");
	EXPECT_VALUE(program_exists(id), true, "the program still exists");
}
