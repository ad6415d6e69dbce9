// SPDX-License-Identifier: GPL-2.0
/* C1 and C2: the recipient of a hit's signal, its siginfo, and the effect of a limit on it. */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "harness/race.h"
#include "lib/gate.h"
#include "lib/program.h"
#include "tests/common.h"
#include "tests/tracing.h"

static void mask(int how, int sig)
{
	const sigset_t set = set_of({ sig });

	if (sigprocmask(how, &set, nullptr))
		setup_failed("sigprocmask", errno);
}

/* Blocks @sig in this thread, and in the threads and children that it creates. */
static void block(int sig)
{
	mask(SIG_BLOCK, sig);
}

static void unblock(int sig)
{
	mask(SIG_UNBLOCK, sig);
}

static bool is_pending(int sig)
{
	sigset_t set;

	return !sigpending(&set) && sigismember(&set, sig);
}

/*
 * Receives the blocked signal @sig until one comes from sigqueue(3), and returns the number of
 * signals from events. The one from sigqueue(3) is the last, because real-time signals are queued
 * in order.
 */
static uint64_t events_received(int sig)
{
	const sigset_t set = set_of({ sig });
	siginfo_t info;
	uint64_t n = 0;

	for (;;) {
		if (sigwaitinfo(&set, &info) != sig)
			continue; /* EINTR */
		if (info.si_code == SI_QUEUE)
			return n;
		n++;
	}
}

static void end_events(int sig, pid_t pid)
{
	if (sigqueue(pid, sig, {}))
		setup_failed("sigqueue", errno);
}

/* Hits HITS times, with @owner as the recipient of the signals. */
static void hit_for(int owner_type, pid_t owner, Verdict verdict)
{
	Filter filter;
	Event event(breakpoint(hit));

	event.async(SETSIG, owner_type, owner);
	enable(event, filter, verdict);
	hit_times(HITS);
	EXPECT_EQ(event.count(), HITS, "hits counted");
}

static uint64_t delivered(Verdict verdict)
{
	return verdict.delivers() ? HITS : 0;
}

/* Another thread owns the event. The thread that hits must not receive a signal. */
static void check_owning_thread(Verdict verdict)
{
	Gate ready, done;
	pid_t tid = 0;
	uint64_t received = 0;

	block(SETSIG);
	std::thread owner([&] {
		tid = gettid();
		ready.open();
		done.pass();
		/* The last signal is for the process, but only this thread waits for it. */
		received = events_received(SETSIG);
	});

	ready.pass();
	hit_for(F_OWNER_TID, tid, verdict);
	EXPECT_FALSE(is_pending(SETSIG), "a signal for another thread is pending here");
	done.open();
	/* A thread dequeues its own signals before those of its process. */
	end_events(SETSIG, getpid());
	owner.join();
	EXPECT_EQ(received, delivered(verdict), "signals to the thread");
}

static void check_owning_process(Verdict verdict)
{
	block(SETSIG);
	Child owner([=] { return events_received(SETSIG); });

	hit_for(F_OWNER_PID, owner.pid(), verdict);
	EXPECT_FALSE(is_pending(SETSIG), "a signal for another process is pending here");
	end_events(SETSIG, owner.pid());
	EXPECT_EQ(exit_code(owner.wait()), delivered(verdict), "signals to the process");
}

/* The process group consists of this process, which is its leader, and a child. */
static void check_owning_group(Verdict verdict)
{
	block(SETSIG);
	Child other([=] { return events_received(SETSIG); });

	hit_for(F_OWNER_PGRP, getpgrp(), verdict);
	for (pid_t pid : { getpid(), other.pid() })
		end_events(SETSIG, pid);
	EXPECT_EQ(events_received(SETSIG), delivered(verdict), "signals to the leader");
	EXPECT_EQ(exit_code(other.wait()), delivered(verdict), "signals to the leader's child");
}

static const struct {
	const char *name, *title;
	void (*check)(Verdict verdict);
} owners[] = {
	{ "thread", "thread", check_owning_thread },
	{ "process", "process", check_owning_process },
	{ "group", "process group", check_owning_group },
};

/* A limit, and the number of rejected hits around each accepted one. */
static const struct {
	uint64_t limit, rejected;
} limits[] = { { 1, 0 }, { 1, HITS }, { LIMIT, 0 }, { LIMIT, 1 }, { LIMIT, HITS } };

/* Rejected hits before, between and after the accepted ones must not affect the accepted ones. */
static void check_limit(uint64_t limit, uint64_t rejected)
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));
	Ring ring(event);

	event.async(SETSIG, gettid());
	event.must_attach(filter);
	event.must_refresh(limit);
	for (uint64_t i = 0; i < limit; i++) {
		filter.returns(0);
		hit_times(rejected);
		EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 0, "POLL_HUPs before the limit");
		filter.returns(1);
		hit(i);
		EXPECT_EQ(Signals::count(SETSIG), i + 1, "signals up to this accepted hit");
	}
	filter.returns(0);
	hit_times(rejected);
	filter.returns(1);
	hit_times(HITS);

	uint64_t hits = limit * (rejected + 1);

	ring.drain();
	EXPECT_EQ(event.count(), hits, "hits counted until the limit");
	EXPECT_EQ(filter.runs(), hits, "runs of the program");
	EXPECT_EQ(ring.samples(), limit, "samples");
	EXPECT_EQ(Signals::count(SETSIG, POLL_IN), limit - 1, "POLL_INs");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");
}

static const bool added = [] {
	for (auto &o : owners) {
		std::string name = std::string("signals.owner.") + o.name, title = o.title;

		add_test({ name + ".rejected", "C1",
			   "rejected hits do not signal the owning " + title,
			   [&o] { o.check(rejects); } });
		add_test({ name + ".accepted", "C2", "accepted hits signal the owning " + title,
			   [&o] {
				   o.check(no_program);
				   o.check({ true, 1 });
			   } });
	}
	for (auto &l : limits) {
		std::string limit = std::to_string(l.limit), rejected = std::to_string(l.rejected);

		add_test({ "signals.limit_" + limit + ".among_" + rejected,
			   l.rejected ? "C1" : "C2",
			   "with a limit of " + limit + ", accepted hit " + limit +
				   " sends POLL_HUP, with " + rejected +
				   " rejected hits around each accepted one",
			   [&l] { check_limit(l.limit, l.rejected); } });
	}
	return true;
}();

TEST("signals.limit.added", "C1", "rejected hits leave the limit untouched, and REFRESH adds to it")
{
	constexpr uint64_t FIRST = 2, MORE = 3;
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));

	event.async(SETSIG, gettid());
	event.must_attach(filter);
	event.must_refresh(FIRST);
	hit_times(HITS);
	event.must_refresh(MORE);
	hit_times(HITS);
	filter.returns(1);
	hit_times(HITS);
	EXPECT_EQ(event.count(), 2 * HITS + FIRST + MORE, "hits counted until the limit");
	EXPECT_EQ(Signals::count(SETSIG, POLL_IN), FIRST + MORE - 1, "POLL_INs");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");
}

/* perf_event_open(2) calls this undefined. */
TEST("signals.limit.added_0", "C10", "REFRESH with 0 enables the event and keeps its limit")
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));

	event.async(SETSIG, gettid());
	filter.returns(1);
	event.must_attach(filter);
	event.must_refresh(LIMIT);
	hit(0);
	event.disable();
	hit_times(HITS);
	EXPECT_EQ(event.count(), 1, "hits counted until DISABLE");
	event.must_refresh(0);
	hit_times(HITS);
	EXPECT_EQ(event.count(), LIMIT, "hits counted until the limit");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");
}

TEST("signals.limit.late", "C2",
     "REFRESH sets the limit regardless of hits that were accepted before")
{
	Filter filter;
	Event event(breakpoint(hit));

	filter.returns(1);
	event.must_attach(filter);
	event.enable();
	hit_times(HITS);
	event.disable();
	event.must_refresh(LIMIT);
	hit_times(HITS);
	EXPECT_EQ(event.count(), HITS + LIMIT, "hits counted until the limit");
}

/*
 * The kernel disables an event at its limit in an interrupt, which is delayed while interrupts are
 * off. Here the breakpoint is on a kernel function that runs, with interrupts off, for each event
 * of a group that is disabled.
 */
static void check_limit_with_interrupts_off(const perf_event_attr &attr, bool can_attach)
{
	constexpr int MEMBERS = 5;
	const perf_event_attr member = software(PERF_COUNT_SW_DUMMY);
	const int cpu = usable_cpus().front();

	run_on(cpu);

	for (bool attached : { false, true }) {
		if (attached && !can_attach)
			break;

		Filter filter;
		Signals signals({ SETSIG });
		Event event(attr, -1, cpu), leader(member);
		Ring ring(event);
		std::vector<std::unique_ptr<Event>> members;

		for (int i = 1; i < MEMBERS; i++)
			members.push_back(std::make_unique<Event>(member, 0, -1, &leader));
		for (auto &sibling : members)
			sibling->enable();
		leader.enable();
		event.async(SETSIG, gettid());
		filter.returns(1);
		if (attached)
			event.must_attach(filter);
		event.must_refresh(1);
		leader.disable();
		ring.drain();
		EXPECT_EQ(ring.samples(), 1, "samples");
		EXPECT_EQ(event.count(), 1, "hits counted");
		EXPECT_EQ(Signals::count(SETSIG, POLL_IN), 0, "POLL_INs");
		EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");

		/* The event was stopped at its limit, and must start again. */
		leader.enable();
		event.must_refresh(1);
		leader.disable();
		ring.drain();
		EXPECT_EQ(ring.samples(), 2, "samples after another REFRESH");
	}
}

TEST_OF("signals.limit.interrupts_off", "C2",
	"no hit beyond the limit is delivered while interrupts are off",
	check_limit_with_interrupts_off(breakpoint_in_kernel("perf_swevent_del"), true))

TEST_OF("signals.limit.interrupts_off.kprobe", "C2",
	"no kprobe hit beyond the limit is delivered while interrupts are off",
	check_limit_with_interrupts_off(kprobe_on("perf_swevent_del"), false))

/*
 * An exiting child wakes up readers of the event, which must not send a signal for a rejected hit.
 */
TEST("signals.child_exit", "C1", "an exiting child sends no signal for rejected hits")
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(inherited(breakpoint(hit)));

	event.async(SETSIG, gettid());
	event.enable(filter);
	hit_times(HITS);

	Child child([] {
		hit_times(HITS);
		return 0;
	});

	EXPECT_STATUS(child.wait(), 0, "the child");
	EXPECT_EQ(event.count(), 2 * HITS, "hits counted");
	EXPECT_EQ(Signals::count(SETSIG), 0, "signals");
}

TEST("signals.siginfo", "C2",
     "the siginfo of F_SETSIG has the event's descriptor, and POLL_IN or, at the limit, POLL_HUP")
{
	for (bool attached : { false, true }) {
		Filter filter;
		Signals signals({ SETSIG });
		Event event(breakpoint(hit));

		event.async(SETSIG, gettid());
		filter.returns(1);
		if (attached)
			event.must_attach(filter);
		event.must_refresh(2);

		hit(0);
		siginfo_t in = Signals::last(SETSIG);

		EXPECT_VALUE(in.si_fd, event.fd(), "si_fd of a hit");
		EXPECT_VALUE(in.si_code, POLL_IN, "si_code of a hit");
		EXPECT_HEX(in.si_band, POLLIN | POLLRDNORM, "si_band of a hit");

		hit(1);
		siginfo_t hup = Signals::last(SETSIG);

		EXPECT_VALUE(hup.si_fd, event.fd(), "si_fd at the limit");
		EXPECT_VALUE(hup.si_code, POLL_HUP, "si_code at the limit");
		EXPECT_HEX(hup.si_band, POLLHUP | POLLERR, "si_band at the limit");
	}
}

TEST("signals.two_events", "C1",
     "of two events with the same signal, only the accepting one sends it")
{
	Filter rejecting, accepting;
	Signals signals({ SETSIG });
	Event quiet(breakpoint(hit)), loud(breakpoint(hit_other));
	uint64_t from_loud = 0;

	accepting.returns(1);
	quiet.must_attach(rejecting);
	loud.must_attach(accepting);
	for (Event *event : { &quiet, &loud }) {
		event->async(SETSIG, gettid());
		event->enable();
	}
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		hit_other(i);
		from_loud += Signals::last(SETSIG).si_fd == loud.fd();
	}
	EXPECT_EQ(from_loud, HITS, "signals of the accepting event");
	EXPECT_EQ(Signals::count(SETSIG), HITS, "signals in total");
}

/*
 * On PREEMPT_RT a kernel thread sends the signal. Lazy irq_work, which waits for the next tick,
 * such as waking up readers of the kernel log, must not delay the signal: all hits until then would
 * share one.
 */
TEST("signals.behind_lazy_work", "C6",
     "irq_work that waits for the next tick does not delay the signal of a hit")
{
	static constexpr char kmsg[] = "/dev/kmsg", line[] = "perf_bpf_filter: to be read\n";
	constexpr uint64_t TRIES = 10;
	Fd messages(open(kmsg, O_WRONLY | O_CLOEXEC));
	Child reader([] {
		Fd log(open(kmsg, O_RDONLY | O_CLOEXEC));
		char text[1024];

		lseek(log.get(), 0, SEEK_END);
		/* EPIPE: the reader was too slow, and some messages were overwritten. */
		while (read(log.get(), text, sizeof(text)) >= 0 || errno == EPIPE)
			;
		return 1;
	});
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));

	if (!messages.valid())
		unavailable("/dev/kmsg cannot be opened");
	run_on(usable_cpus().front());
	event.async(SETSIG, gettid());
	filter.returns(1);
	event.enable(filter);
	for (uint64_t i = 0; i < TRIES; i++) {
		usleep(20'000); /* wait for some ticks, and for the reader to sleep */
		if (write(messages.get(), line, sizeof(line) - 1) < 0)
			unavailable("/dev/kmsg cannot be written");
		hit_times(HITS);
	}
	EXPECT_EQ(Signals::count(SETSIG), TRIES * HITS, "signals");
}

/*
 * The thread that sends the signal on PREEMPT_RT has the lowest real-time priority. A task with a
 * higher one could hit again before that thread runs.
 */
TEST("signals.realtime", "C6", "a real-time task receives one signal for each hit")
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));

	run_on(usable_cpus().front());
	become_realtime(2);
	event.async(SETSIG, gettid());
	filter.returns(1);
	event.enable(filter);
	for (uint64_t hits = 0; hits < HITS && Signals::count(SETSIG) == hits; hits++) {
		hit(hits);
		for (int i = 0; i < 1000 && Signals::count(SETSIG) == hits; i++)
			usleep(1000);
	}
	EXPECT_EQ(Signals::count(SETSIG), HITS, "signals");
}

/*
 * The event is CPU-wide and also counts in kernel mode. On PREEMPT_RT the test preempts the thread
 * that is sending the signal of the event, and hits again. A slow program on kill_fasync() gives
 * the test time for that. Without PREEMPT_RT an interrupt sends the signal, and cannot be
 * preempted.
 */
TEST("signals.preempted", "C6",
     "a hit of a task that preempts the thread sending the event's signal sends another signal")
{
	constexpr uint64_t LEAST = 20, TRIES = 2 * LEAST, COOKIE = 1;
	constexpr int ENOUGH_MILLISECONDS = 500;
	const int cpu = usable_cpus().front();
	perf_event_attr attr = breakpoint(hit);
	Filter filter(Program::CHECKS_COOKIE);
	Signals signals({ SETSIG });
	uint64_t overlaps = 0, lost = 0;

	attr.exclude_kernel = 0;
	run_on(cpu);

	Event event(attr, -1, cpu), sending(breakpoint_in_kernel("kill_fasync"), -1, cpu);
	Fd link = must_link(filter.prog_fd(), sending, COOKIE);

	filter.checks(COOKIE, 1'000'000);
	event.async(SETSIG, gettid());
	sending.enable();
	event.enable();
	become_realtime(50);
	for (uint64_t i = 0; i < TRIES && !lost; i++) {
		const uint64_t before = Signals::count(SETSIG), runs = filter.runs();

		hit(i);
		usleep(200);

		const bool was_sending = filter.runs() > runs && Signals::count(SETSIG) == before;

		hit(i);
		for (int ms = 0; ms < ENOUGH_MILLISECONDS && Signals::count(SETSIG) < before + 2;
		     ms++)
			usleep(1000);
		overlaps += was_sending;
		lost += was_sending && Signals::count(SETSIG) != before + 2;
	}
	note("%llu hits while a signal was being sent", (unsigned long long)overlaps);
	EXPECT_EQ(lost, 0, "hits without a signal");
	if (kernel_is_realtime())
		report_met(overlaps, LEAST);
	if (kernel_is_realtime() && !lost)
		EXPECT_GE(overlaps, LEAST, "hits while a signal was being sent");
}

static constexpr uint64_t SIG_DATA = 0x123456789abcdef0;

static perf_event_attr with_sig_data(perf_event_attr attr)
{
	attr = with_sigtrap(attr);
	attr.sig_data = SIG_DATA;
	return attr;
}

TEST("signals.sigtrap.siginfo", "C2",
     "the siginfo of SIGTRAP has the address, the type and the sig_data of the event")
{
	static volatile uint64_t watched;
	const struct {
		perf_event_attr attr;
		void (*access)(uint64_t);
		const volatile void *addr;
	} kinds[] = {
		{ breakpoint(hit), hit, reinterpret_cast<void *>(hit) },
		{ breakpoint(Access::WRITE, &watched, sizeof(watched)),
		  [](uint64_t value) { watched = value; }, &watched },
	};

	for (auto &kind : kinds) {
		for (bool attached : { false, true }) {
			Filter filter;
			Signals signals({ SIGTRAP });
			Event event(with_sig_data(kind.attr));

			enable(event, filter, { attached, 1 });
			for (uint64_t i = 0; i < HITS; i++)
				kind.access(i);

			TrapInfo trap = trap_info(Signals::last(SIGTRAP));

			EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), HITS,
				  "SIGTRAPs with TRAP_PERF");
			EXPECT_HEX(trap.addr, reinterpret_cast<uintptr_t>(kind.addr), "si_addr");
			EXPECT_HEX(trap.data, SIG_DATA, "si_perf_data");
			EXPECT_VALUE(trap.type, PERF_TYPE_BREAKPOINT, "si_perf_type");
			EXPECT_HEX(trap.flags, 0, "si_perf_flags");
		}
	}
}

TEST("signals.sigtrap.blocked.rejected", "C1", "rejected hits leave no SIGTRAP pending")
{
	Filter filter;
	Signals signals({ SIGTRAP });
	Event event(with_sig_data(breakpoint(hit)));

	event.enable(filter);
	block(SIGTRAP);
	hit_times(HITS);
	EXPECT_FALSE(is_pending(SIGTRAP), "SIGTRAP is pending");
	unblock(SIGTRAP);
	EXPECT_EQ(Signals::count(SIGTRAP), 0, "SIGTRAPs");
	expect_hits(event, filter, HITS);
}

TEST("signals.sigtrap.blocked.accepted", "C2",
     "accepted hits while SIGTRAP is blocked raise one SIGTRAP when it is unblocked")
{
	for (bool attached : { false, true }) {
		Filter filter;
		Signals signals({ SIGTRAP });
		Event event(with_sig_data(breakpoint(hit)));

		enable(event, filter, { attached, 1 });
		block(SIGTRAP);
		hit_times(HITS);
		EXPECT_TRUE(is_pending(SIGTRAP), "SIGTRAP is pending");
		EXPECT_EQ(Signals::count(SIGTRAP), 0, "SIGTRAPs while blocked");
		unblock(SIGTRAP);
		EXPECT_EQ(Signals::count(SIGTRAP, TRAP_PERF), 1, "SIGTRAPs with TRAP_PERF");
		EXPECT_HEX(trap_info(Signals::last(SIGTRAP)).flags, TRAP_WAS_BLOCKED,
			   "si_perf_flags");
	}
}

/* The kernel reads it in execve(). It consists of two words, each with a watchpoint. */
static char argument[] __attribute__((aligned(8))) = "argument, second";

TEST("signals.sigtrap.exec.during", "C15",
     "the SIGTRAP of a hit in execve() does not reach the new program, which it would terminate")
{
	constexpr int TIMES = 20;
	const auto attr_for = [](const char *word) {
		perf_event_attr attr = breakpoint(Access::READ_WRITE, word, sizeof(uint64_t));

		attr.exclude_kernel = 0;
		return with_sigtrap(attr);
	};
	int died = 0;

	need_kernel_hits();
	Event(attr_for(argument)).close(); /* skips the test without attr.sigtrap */
	for (int i = 0; i < TIMES; i++) {
		Child child([&] {
			Event event(attr_for(argument)), another(attr_for(argument + 8));

			event.enable();
			another.enable();
			/*
			 * Use the full path: after a failed exec(), the SIGTRAP goes to the old
			 * program.
			 */
			execl("/bin/true", "true", argument, nullptr);
			return 1;
		});

		died += child.wait() != 0;
	}
	EXPECT_EQ(died, 0, "new programs that did not exit with 0");
}

/*
 * Executes grep for a pending SIGTRAP, which is bit 4 of SigPnd (of the thread) and of ShdPnd (of
 * the process). grep returns 1 if it finds none.
 */
static int exec_grep(const char *pattern)
{
	execlp("grep", "grep", "-q", pattern, "/proc/self/status", nullptr);
	return 2;
}

static constexpr char OF_THREAD[] = "^SigPnd:.*[13579bdf].$",
		      OF_PROCESS[] = "^ShdPnd:.*[13579bdf].$";

static void exec_with_pending_sigtrap(bool close_before)
{
	const perf_event_attr attr = with_sigtrap(breakpoint(hit));

	Event(attr).close();

	Child child([&] {
		Event event(attr);

		block(SIGTRAP);
		event.enable();
		hit(0);
		EXPECT_TRUE(is_pending(SIGTRAP), "SIGTRAP is pending before exec");
		if (close_before)
			event.close();
		return exec_grep(OF_THREAD);
	});

	EXPECT_STATUS(child.wait(), W_EXITCODE(1, 0), "grep for a pending SIGTRAP");
}

/* perf_event_remove_on_exec() calls mutex_lock(), as do many other functions. */
TEST("signals.sigtrap.exec.removed", "C15",
     "the SIGTRAP of a hit that occurs while exec() removes the event does not survive exec()")
{
	need_kernel_hits();

	const perf_event_attr attr = with_sigtrap(breakpoint_in_kernel("mutex_lock"));

	Event(attr).close();

	Child child([&] {
		Event event(attr);

		block(SIGTRAP);
		event.enable();
		return exec_grep(OF_THREAD);
	});

	EXPECT_STATUS(child.wait(), W_EXITCODE(1, 0), "grep for a pending SIGTRAP");
}

TEST("signals.sigtrap.exec.blocked", "C15", "the pending SIGTRAP of a hit does not survive exec()")
{
	exec_with_pending_sigtrap(false);
}

TEST("signals.sigtrap.exec.closed", "C15",
     "the pending SIGTRAP of a closed event does not survive exec()")
{
	exec_with_pending_sigtrap(true);
}

/* The number of signals that are queued for the user, which RLIMIT_SIGPENDING limits. */
static uint64_t queued_signals()
{
	return std::stoull(status_field("/proc/self", "SigQ"));
}

TEST("signals.sigtrap.exec.freed", "C15",
     "a SIGTRAP that exec() drops no longer counts against RLIMIT_SIGPENDING")
{
	constexpr uint64_t TIMES = 20;
	const uint64_t before = queued_signals();

	for (uint64_t i = 0; i < TIMES; i++)
		exec_with_pending_sigtrap(false);
	/* Other processes of the user may have queued signals, too. */
	EXPECT_LT(queued_signals(), before + TIMES, "queued signals");
}

/* A file with @text that execve() can open: /proc/self/fd/N. */
static Fd script(const std::string &text)
{
	Fd writer(memfd_create("script", 0));

	if (write(writer.get(), text.data(), text.size()) != ssize_t(text.size()))
		setup_failed("write", errno);
	/* Without O_CLOEXEC: the interpreter opens it again. */
	return Fd(open(("/proc/self/fd/" + std::to_string(writer.get())).c_str(), O_RDONLY));
}

static std::string path(const Fd &file)
{
	return "/proc/self/fd/" + std::to_string(file.get());
}

/* The kernel reads this name in execve(), and grep searches the file. */
static char status_file[] __attribute__((aligned(8))) = "/proc/self/status";

TEST("signals.sigtrap.exec.closed.child", "C15",
     "the SIGTRAP of a hit in execve() does not reach the new program if the parent closes the "
     "inherited event before exec removes it")
{
	perf_event_attr attr =
		with_sigtrap(breakpoint(Access::READ_WRITE, status_file, sizeof(uint64_t)));

	need_kernel_hits();
	attr.exclude_kernel = 0;
	attr.inherit = 1;

	Event event(attr);
	/*
	 * execve() copies the arguments, then opens the interpreter, and waits there until the
	 * parent gives up its lease.
	 */
	Fd interpreter = script("#!/bin/grep -qf\n^SigPnd:.*[13579bdf].$\n");
	Fd program = script("#!" + path(interpreter) + "\n");

	if (fcntl(interpreter.get(), F_SETLEASE, F_WRLCK))
		setup_failed("F_SETLEASE", errno);
	block(SIGIO);
	event.enable();

	Child child([&] {
		event.close();
		block(SIGTRAP);
		execl(path(program).c_str(), "script", status_file, nullptr);
		return 2;
	});

	while (fcntl(interpreter.get(), F_GETLEASE) == F_WRLCK)
		usleep(1000);

	/* Before 6.12, close() waits for the SIGTRAP. */
	std::thread closing([&] { event.close(); });

	usleep(100'000);
	fcntl(interpreter.get(), F_SETLEASE, F_UNLCK);
	closing.join();
	EXPECT_STATUS(child.wait(), W_EXITCODE(1, 0), "grep for a pending SIGTRAP");
}

TEST("signals.sigtrap.exec.others", "C2", "a pending SIGTRAP from another sender survives exec()")
{
	const perf_event_attr attr = with_sigtrap(breakpoint(hit));

	Event(attr).close();
	for (bool to_process : { false, true }) {
		Child child([&] {
			Event event(attr);

			block(SIGTRAP);
			event.enable();
			if (to_process)
				kill(getpid(), SIGTRAP);
			else
				syscall(SYS_tgkill, getpid(), gettid(), SIGTRAP);
			hit(0);
			return exec_grep(to_process ? OF_PROCESS : OF_THREAD);
		});

		EXPECT_STATUS(child.wait(), 0, "grep for a pending SIGTRAP");
	}
}

/* POLL_HUP and TRAP_PERF are the same number. */
TEST("signals.sigtrap.exec.others.limit", "C2",
     "a pending SIGTRAP from another sender survives exec() if a POLL_HUP is pending, too")
{
	static_assert(int(POLL_HUP) == int(TRAP_PERF));

	Child child([&] {
		Event event(breakpoint(hit));

		block(SIGTRAP);
		block(SETSIG);
		event.async(SETSIG, gettid());
		event.must_refresh(1);
		hit(0);
		EXPECT_TRUE(is_pending(SETSIG), "POLL_HUP is pending before exec");
		syscall(SYS_tgkill, getpid(), gettid(), SIGTRAP);
		return exec_grep(OF_THREAD);
	});

	EXPECT_STATUS(child.wait(), 0, "grep for a pending SIGTRAP");
}

TEST("signals.sigtrap.by_register", "C1",
     "only calls with the wanted argument raise SIGTRAP, and do so before they return")
{
	constexpr uint64_t WANTED = 3, KINDS = 4;
	Filter filter;
	Signals signals({ SIGTRAP });
	Event event(with_sig_data(breakpoint(hit)));
	uint64_t wrong = 0;

	filter.returns_if(1, FILTER_ARGUMENT, WANTED);
	event.enable(filter);
	for (uint64_t i = 0; i < HITS; i++) {
		uint64_t before = Signals::count(SIGTRAP);

		hit(i % KINDS);
		wrong += Signals::count(SIGTRAP) - before != (i % KINDS == WANTED);
	}
	EXPECT_EQ(wrong, 0, "calls with a wrong number of SIGTRAPs");
	EXPECT_EQ(Signals::count(SIGTRAP), HITS / KINDS, "SIGTRAPs");
}

TEST("signals.sigtrap.unhandled", "C1",
     "without a handler, SIGTRAP terminates the task at the first accepted hit, not before")
{
	/* Skip the test here, not in the children, if the kernel lacks what they need. */
	const Event skips(with_sig_data(breakpoint(hit)));
	const Fd loads = load_least(0);

	for (uint32_t verdict : { 0, 1 }) {
		Child child([=] {
			Filter filter;
			Event event(with_sig_data(breakpoint(hit)));

			filter.returns(verdict);
			event.enable(filter);
			hit_times(HITS);
			return 0;
		});
		int status = child.wait();

		EXPECT_STATUS(WIFSIGNALED(status) ? WTERMSIG(status) : 0, verdict ? SIGTRAP : 0,
			      "the child");
	}
}
