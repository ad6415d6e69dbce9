// SPDX-License-Identifier: GPL-2.0
/*
 * Reproducers of what the fuzzer found in kernels outside of the series. None has to do with BPF,
 * and none takes rights. For a guest: a kernel with the defect may not survive.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <thread>

#include "perf.h"

[[noreturn]] static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "perf_bpf_known: %s: %s\n", what, why);
	exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, strerror(err));
}

void unavailable(const char *reason)
{
	give_up("cannot begin", reason);
}

static constexpr int SECONDS = 30;
static volatile uint64_t words[8];

static perf_event_attr on_word(int i)
{
	perf_event_attr attr = breakpoint(Access::WRITE, &words[i], sizeof(words[i]));

	attr.disabled = 0;
	return attr;
}

/*
 * PR_TASK_PERF_EVENTS_DISABLE takes current->perf_event_mutex, then ctx->mutex of each event.
 * PERF_EVENT_IOC_MODIFY_ATTRIBUTES, where the type of a breakpoint changes, takes ctx->mutex and
 * then, in bp_constraints_lock(), perf_event_mutex of the task that the breakpoint is on.
 */
static int deadlock()
{
	std::atomic<uint64_t> modified = 0, disabled = 0;
	perf_event_attr attr = on_word(0);
	Event event(attr);

	if (prctl(PR_TASK_PERF_EVENTS_DISABLE) ||
	    ioctl(event.fd(), PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr))
		setup_failed("PR_TASK_PERF_EVENTS_DISABLE, MODIFY_ATTRIBUTES", errno);
	std::thread([&] {
		for (;; modified++) {
			attr.bp_type ^= HW_BREAKPOINT_R;
			ioctl(event.fd(), PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr);
		}
	}).detach();
	std::thread([&] {
		for (int i = 0; i < SECONDS; i += 2) {
			uint64_t before = modified + disabled;

			sleep(2);
			if (modified + disabled == before) {
				puts("deadlock: two threads wait for each other, and SIGKILL too");
				fflush(stdout);
				_exit(1); /* which does not end either */
			}
		}
		puts("deadlock: none");
		fflush(stdout);
		_exit(0);
	}).detach();
	for (;; disabled++)
		prctl(PR_TASK_PERF_EVENTS_DISABLE);
}

/*
 * perf_event_open() puts the event on the list of its owner after it has let go of the context and
 * of exec_update_lock of the task that the event is on. If that task calls exec just then,
 * attr.remove_on_exec (so attr.sigtrap too) takes the event off a list that it is not on yet:
 * perf_remove_from_owner() writes to a NULL pointer.
 */
static int exec_oops()
{
	static const char self[] = "/proc/self/exe";
	const time_t end = time(nullptr) + SECONDS;
	perf_event_attr attr = {};
	Child child([] { return execl(self, self, "exec", nullptr); });

	attr.type = PERF_TYPE_SOFTWARE;
	attr.size = sizeof(attr);
	attr.config = PERF_COUNT_SW_DUMMY;
	attr.remove_on_exec = 1;
	attr.exclude_kernel = attr.exclude_hv = 1;
	while (time(nullptr) < end) {
		Fd fd(syscall(SYS_perf_event_open, &attr, child.pid(), -1, -1,
			      PERF_FLAG_FD_CLOEXEC));

		if (!fd.valid() && errno == EINVAL)
			unavailable("no remove_on_exec before 5.13");
	}
	puts("exec: the kernel survived");
	return 0;
}

/*
 * A task and its child swap their contexts when these are equal, so that a breakpoint can be in
 * the context of one and be counted for the other (bp->hw.target). As the parent exits, what is
 * freed is the child's breakpoint and its register; the parent's stays, in the context of the
 * child, which may then have four more. arch_install_hw_breakpoint() warns that it finds no slot.
 */
static int slots()
{
	run_on(usable_cpus().front());
	for (int round = 0; round < 50; round++) {
		Child parent([&] {
			perf_event_attr inherited = on_word(0);
			const pid_t self = getpid();

			inherited.inherit = 1;

			Event event(inherited);

			if (!fork()) {
				Fd fds[5];

				while (getppid() == self)
					sched_yield();
				for (auto &fd : fds) {
					perf_event_attr attr = on_word(1 + (&fd - fds));

					fd = Fd(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
				}
				usleep(1000);
				_exit(0);
			}
			/* Until the last change of tasks was one in which the two swapped. */
			for (int i = 0; i < 1 + round % 5; i++)
				usleep(1000);
			_exit(0);
			return 0;
		});

		parent.wait();
		usleep(20'000);
	}
	puts("slots: a kernel with the defect has warned, once: see its log");
	return 0;
}

static int faults_fd;
static std::atomic<uint64_t> signals_for_a_fault;

static constexpr uint64_t ENOUGH = 1000;

static void on_fault(int)
{
	if (++signals_for_a_fault == ENOUGH)
		ioctl(faults_fd, PERF_EVENT_IOC_DISABLE, 0);
}

/*
 * Under the lock of a VMA a fault on a ring asks to be retried under that of the mm, for its
 * vm_ops have no map_pages; do_user_addr_fault() looks first whether a signal is pending, and goes
 * back to user mode for it. If the signal is that of an event which counts page faults, it faults
 * again and is sent the next: the task does nothing else, until it is killed.
 */
static int fault()
{
	perf_event_attr faults = {}, attr = on_word(0);

	signal(SIGIO, on_fault);
	raise(SIGIO); /* its stack is there now */
	signals_for_a_fault = 0;
	faults.type = PERF_TYPE_SOFTWARE;
	faults.size = sizeof(faults);
	faults.config = PERF_COUNT_SW_PAGE_FAULTS;
	faults.sample_period = 1;
	faults.disabled = 1;

	Event event(attr), counts(faults);
	Ring ring(event);

	faults_fd = counts.fd();
	counts.async(SIGIO, gettid());
	counts.enable();
	ring.drain();
	counts.disable();
	printf("fault: %lu signals for the first look at a ring%s\n", signals_for_a_fault.load(),
	       signals_for_a_fault < ENOUGH ? "" : ", which would not have ended");
	return 0;
}

static const struct {
	const char *name, *says;
	int (*run)();
} known[] = {
	{ "deadlock", "MODIFY_ATTRIBUTES against PR_TASK_PERF_EVENTS_DISABLE; 6.1 and later",
	  deadlock },
	{ "exec", "exec against perf_event_open() with remove_on_exec: an oops; 5.13 and later",
	  exec_oops },
	{ "fault",
	  "a page fault on a ring whose event of page faults sends SIGIO: a livelock; 6.12, 7.3",
	  fault },
	{ "slots",
	  "one breakpoint too many in a child whose parent has exited: a WARN; 5.10 and later",
	  slots },
};

int main(int argc, char **argv)
{
	/* What a child of exec_oops() is, again and again. */
	if (argc == 2 && !strcmp(argv[0], "/proc/self/exe"))
		return execl(argv[0], argv[0], argv[1], nullptr);
	for (auto &one : known)
		if (argc == 2 && !strcmp(argv[1], one.name))
			return one.run();
	printf("usage: perf_bpf_known NAME\n"
	       "Shows a defect of the kernel that is outside of the series. Take a guest for "
	       "it.\n");
	for (auto &one : known)
		printf("  %-10s %s\n", one.name, one.says);
	return argc == 2 && !strcmp(argv[1], "--help") ? 0 : 2;
}
