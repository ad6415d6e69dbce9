// SPDX-License-Identifier: GPL-2.0
/* Which hits an event counts, and for how long: threads, children, exec(), CPUs, descriptors. */
#include <bpf/bpf.h>
#include <elf.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <fstream>
#include <optional>
#include <thread>

#include "lib/clock.h"
#include "lib/cpus.h"
#include "lib/gate.h"
#include "lib/mount.h"
#include "lib/program.h"
#include "lib/ptrace.h"
#include "lib/rights.h"
#include "lib/sysctl.h"
#include "tests/common.h"

static uint64_t when(bool condition, uint64_t number)
{
	return condition ? number : 0;
}

/* Each @body below has a test that rejects and one that accepts. */
struct Pair {
	const char *name, *rejected, *accepted; /* descriptions */
	void (*body)(bool accept);
};

static void other_process(bool accept)
{
	Gate gate;
	Filter filter;
	Signals signals({ SETSIG });
	Child child([&] {
		gate.pass();
		hit_times(HITS);
		return 0;
	});
	Event event(breakpoint(hit), child.pid());
	Ring ring(event);

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);
	hit_times(HITS);
	EXPECT_EQ(event.count(), 0, "hits counted in the monitor");
	gate.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
	ring.drain();
	expect_hits(event, filter, HITS);
	expect_delivered(ring, when(accept, HITS));
}

static void other_process_sigtrap(bool accept)
{
	Gate gate;
	Filter filter;
	Child child([&] {
		Signals signals({ SIGTRAP });

		gate.pass();
		hit_times(HITS);
		return int(Signals::count(SIGTRAP, TRAP_PERF));
	});
	Event event(with_sigtrap(breakpoint(hit)), child.pid());

	filter.returns(accept);
	event.enable(filter);
	gate.open();

	EXPECT_EQ(exit_code(child.wait()), when(accept, HITS), "SIGTRAPs in the child");
	EXPECT_EQ(event.count(), HITS, "hits counted");
}

/* Threads that are created after the program was attached inherit it, and trap separately. */
static thread_local uint64_t traps_here;

static void threads(bool accept)
{
	constexpr int THREADS = 4;
	Filter filter;
	Handler handler(SIGTRAP, [](int, siginfo_t *, void *) { traps_here = traps_here + 1; });
	uint64_t traps[THREADS] = {};
	std::vector<std::thread> running;
	Event event(with_sigtrap(inherited(breakpoint(hit))));

	filter.returns(accept);
	event.enable(filter);
	for (uint64_t &mine : traps)
		running.emplace_back([&mine] {
			hit_times(HITS);
			mine = traps_here;
		});
	for (std::thread &thread : running)
		thread.join();
	for (uint64_t n : traps)
		EXPECT_EQ(n, when(accept, HITS), "SIGTRAPs in the thread that hit");
	EXPECT_EQ(traps_here, 0, "SIGTRAPs in the thread that did not hit");
	expect_hits(event, filter, THREADS * HITS);
}

static void grandchildren(bool accept)
{
	constexpr uint64_t GENERATIONS = 3;
	Filter filter;
	Signals signals({ SETSIG });
	Event event(inherited(breakpoint(hit)));

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	/*
	 * Each process hits before it forks: the exit of a child wakes up the owner and could send
	 * the signal of a hit whose irq_work is pending a second time.
	 */
	Child child([] {
		hit_times(HITS);
		Child grandchild([] {
			hit_times(HITS);
			Child great_grandchild([] {
				hit_times(HITS);
				return 0;
			});

			return great_grandchild.wait();
		});

		return grandchild.wait();
	});

	EXPECT_STATUS(child.wait(), 0, "the child");
	expect_hits(event, filter, GENERATIONS * HITS);
	EXPECT_EQ(Signals::count(SETSIG), when(accept, GENERATIONS * HITS), "signals to the owner");
}

static void inherit_thread(bool accept)
{
	perf_event_attr attr = with_sigtrap(inherited(breakpoint(hit)));
	Filter filter;

	attr.inherit_thread = 1;

	Signals signals({ SIGTRAP });
	Event event(attr);

	filter.returns(accept);
	event.enable(filter);

	Child child([] {
		hit_times(HITS);
		return int(Signals::count(SIGTRAP));
	});

	EXPECT_STATUS(child.wait(), 0, "the child, whose exit code is its number of SIGTRAPs");
	EXPECT_EQ(filter.runs(), 0, "runs of the program for a child process");
	std::thread([] { hit_times(HITS); }).join();
	EXPECT_EQ(filter.runs(), HITS, "runs of the program for a thread");
	EXPECT_EQ(event.count(), HITS, "hits counted");
	EXPECT_EQ(Signals::count(SIGTRAP), when(accept, HITS), "SIGTRAPs");
}

/*
 * The event is for all tasks on a CPU, so the word is at an address that no other process writes.
 */
static void per_cpu(bool accept)
{
	const std::vector<int> cpus = usable_cpus();
	auto *word = static_cast<volatile uint64_t *>(mmap(nullptr, sysconf(_SC_PAGESIZE),
							   PROT_READ | PROT_WRITE,
							   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(Access::WRITE, word, sizeof(*word)), -1, cpus[0]);
	Ring ring(event);

	event.async(SETSIG, gettid());
	filter.returns(accept);
	event.enable(filter);

	/* On all CPUs, in this process and in a child. The event counts on one CPU only. */
	auto write_everywhere = [&] {
		for (int cpu : cpus) {
			run_on(cpu);
			for (uint64_t i = 0; i < HITS; i++)
				*word = i;
		}
	};

	write_everywhere();
	EXPECT_EQ(filter.runs(), HITS, "runs of the program for this process");
	in_child([&] { write_everywhere(); });
	ring.drain();
	expect_hits(event, filter, 2 * HITS);
	expect_delivered(ring, when(accept, 2 * HITS));
}

/*
 * The helper acts like the privileged helper of a debugger: it opens the event, attaches the
 * program, passes the event on, and exits.
 */
static void passed_on(bool accept)
{
	SocketPair ends;
	Filter filter;
	Signals signals({ SETSIG });

	filter.returns(accept);

	Child helper([&] {
		Event event(breakpoint(hit), getppid());

		event.must_attach(filter);
		return send_fd(ends.there.get(), event.fd());
	});

	ends.there.close();

	int err;
	Fd received = receive_fd(ends.here.get(), &err);

	EXPECT_ERRNO(err, 0, "recvmsg");
	EXPECT_STATUS(helper.wait(), 0, "the helper");
	if (!received.valid())
		skip("the helper has no event, see its reason");

	Event event(std::move(received));
	Ring ring(event);

	event.async(SETSIG, gettid());
	event.must_refresh(LIMIT);
	hit_times(LIMIT - 1);
	ring.drain();
	expect_hits(event, filter, LIMIT - 1);
	expect_delivered(ring, when(accept, LIMIT - 1));
}

/* The new program is the suite itself, which calls add_test() once for each test. */
static void after_exec(bool accept)
{
	constexpr uint64_t AT_LEAST = 100;
	Elf64_Ehdr header = {};

	std::ifstream("/proc/self/exe", std::ios::binary)
		.read(reinterpret_cast<char *>(&header), sizeof(header));
	if (header.e_type != ET_EXEC)
		unavailable("the suite is at another address after exec()");

	for (Async async : { Async::TO_THREAD, Async::TO_PROCESS })
		for (bool limit : { false, true }) {
			Gate gate;
			Pipe list;
			Filter filter;
			Signals signals({ SETSIG, SIGIO });
			Child child([&] {
				gate.pass();
				dup2(list.in.get(), STDOUT_FILENO);
				execl("/proc/self/exe", "perf_bpf_filter", "--list", nullptr);
				return 1;
			});
			Event event(breakpoint(add_test), child.pid());
			Ring ring(event);

			if (async == Async::TO_THREAD)
				event.async(SETSIG, gettid());
			else
				event.async();
			filter.returns(accept);
			event.must_attach(filter);
			if (limit)
				event.must_refresh(LIMIT);
			else
				event.enable();
			list.in.close();
			gate.open();

			char text[4096];
			ssize_t n = read(list.out.get(), text, sizeof(text));

			/* The list does not fit into the pipe, so the program is still there. */
			EXPECT_VALUE(ring.poll_ready(), accept, "poll() found the event ready");
			while (n > 0)
				n = read(list.out.get(), text, sizeof(text));
			EXPECT_STATUS(child.wait(), 0, "the new program");
			ring.drain();

			const uint64_t count = event.count();

			if (limit && accept)
				EXPECT_EQ(count, LIMIT, "hits counted in the new program");
			else
				EXPECT_GE(count, AT_LEAST, "hits counted in the new program");
			EXPECT_EQ(filter.runs(), count, "runs of the program");
			EXPECT_EQ(ring.samples(), when(accept, count), "samples");
			if (async == Async::TO_THREAD) {
				EXPECT_EQ(Signals::count(SETSIG), when(accept, count), "signals");
				EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), limit && accept,
					  "POLL_HUPs");
			} else {
				/* A SIGIO that is pending is not queued again. */
				EXPECT_VALUE(Signals::count(SIGIO) > 0, accept, "SIGIO was sent");
			}
		}
}

static void period(bool accept)
{
	constexpr uint64_t PERIOD = 4, OVERFLOWS = HITS + HITS / PERIOD + HITS;

	for (bool attached : { false, true }) {
		Filter filter;
		Signals signals({ SETSIG });
		Event event(breakpoint(hit));
		Ring ring(event);
		bool delivers = accept || !attached;

		event.async(SETSIG, gettid());
		enable(event, filter, { attached, accept });
		hit_times(HITS);
		event.set_period(PERIOD);
		hit_times(HITS);
		event.set_period(1);
		hit_times(HITS);
		ring.drain();
		EXPECT_EQ(event.count(), 3 * HITS, "hits counted");
		EXPECT_EQ(filter.runs(), when(attached, OVERFLOWS), "runs of the program");
		expect_delivered(ring, when(delivers, OVERFLOWS));
	}
}

/* The link is pinned in bpffs: it keeps its program attached after all descriptors are closed. */
static void pinned(bool accept)
{
	static constexpr char bpffs[] = "/sys/fs/bpf", path[] = "/sys/fs/bpf/perf_bpf_filter";
	constexpr int ENOUGH_MILLISECONDS = 5000;
	Filter filter;
	Signals signals({ SETSIG });

	/* A bpffs that only this test sees. */
	if (!mount_privately("bpf", bpffs))
		unavailable("bpffs cannot be mounted");

	{
		Event event(breakpoint(hit));
		Fd link = filter.link(event);

		event.async(SETSIG, gettid());
		if (bpf_obj_pin(link.get(), path))
			setup_failed("bpf_obj_pin", errno);
		filter.returns(accept);
		event.enable();
		hit_times(HITS);
		EXPECT_EQ(filter.runs(), HITS, "runs of the program before the link is closed");
		link.close();
		hit_times(HITS);
		EXPECT_EQ(filter.runs(), 2 * HITS, "runs of the program after the link is closed");
		EXPECT_EQ(event.count(), 2 * HITS, "hits counted after the link is closed");
	}
	hit_times(HITS);
	EXPECT_EQ(filter.runs(), 3 * HITS, "runs of the program after the event is closed");

	{
		Fd again(bpf_obj_get(path));

		EXPECT_TRUE(again.valid(), "the pinned link can be opened");
		EXPECT_VALUE(unlink(path), 0, "return value of unlink()");
		hit_times(HITS);
		EXPECT_EQ(filter.runs(), 4 * HITS,
			  "runs of the program while only the link is open");
	}

	EXPECT_EQ(Signals::count(SETSIG), when(accept, 4 * HITS), "signals");
	/*
	 * After its file is removed, the link is freed after a grace period, on some kernels in a
	 * work item: first its program, then its event.
	 */
	bool left = true;

	for (int i = 0; left && i < ENOUGH_MILLISECONDS; i++) {
		const uint64_t before = filter.runs() + Signals::count(SETSIG);

		usleep(1000);
		hit_times(HITS);
		left = filter.runs() + Signals::count(SETSIG) != before;
	}
	EXPECT_FALSE(left, "a hit still runs the program or sends a signal");
}

static const Pair pairs[] = {
	{ "other_process", "rejected hits of a monitored process have no side effect",
	  "accepted hits of a monitored process are sampled and signal the monitor",
	  other_process },
	{ "other_process_sigtrap", "rejected hits of a monitored process raise no SIGTRAP in it",
	  "accepted hits of a monitored process raise SIGTRAP in it", other_process_sigtrap },
	{ "threads", "rejected hits raise no SIGTRAP in threads that inherited the event",
	  "an accepted hit of an inherited event raises SIGTRAP only in the thread that hit",
	  threads },
	{ "grandchildren",
	  "rejected hits of grandchildren that inherited the event do not signal its owner",
	  "accepted hits of grandchildren that inherited the event signal its owner",
	  grandchildren },
	{ "inherit_thread",
	  "with inherit_thread, a rejecting program is inherited by threads but not by processes",
	  "with inherit_thread, an accepting program is inherited by threads but not by processes",
	  inherit_thread },
	{ "per_cpu", "rejected hits of a per-CPU event have no side effect, whichever task hits",
	  "accepted hits of a per-CPU event are delivered, whichever task hits", per_cpu },
	{ "passed_on",
	  "an event received over a socket from the process that opened it still rejects hits",
	  "an event received over a socket from the process that opened it still accepts hits",
	  passed_on },
	{ "after_exec", "after exec(), a rejecting filter still rejects the hits of the task",
	  "after exec(), an accepting filter still accepts the hits of the task", after_exec },
	{ "period", "after IOC_PERIOD the program rejects exactly the hits that complete a period",
	  "after IOC_PERIOD the program accepts exactly the hits that complete a period", period },
	{ "pinned",
	  "a pinned link keeps its event and rejecting program while no descriptor is open",
	  "a pinned link keeps its event and accepting program while no descriptor is open",
	  pinned },
};

static const bool added = [] {
	for (const Pair &p : pairs) {
		std::string name = std::string("life.") + p.name;

		add_test({ name + ".rejected", "C1", p.rejected, [&p] { p.body(false); } });
		add_test({ name + ".accepted", "C2", p.accepted, [&p] { p.body(true); } });
	}
	return true;
}();

/* Changes the period from each value to each value, after different numbers of hits. */
static void check_period_in_full(perf_event_attr attr, void (*hits_of)(uint64_t times))
{
	static const uint64_t periods[] = { 1, 2, 3, 7, 100 };
	uint64_t early = 0, late = 0, irregular = 0;

	for (uint64_t before : periods)
		for (uint64_t after : periods)
			for (uint64_t hits :
			     { uint64_t(0), uint64_t(1), before - 1, before, before + 1 }) {
				attr.sample_period = before;

				Event event(attr);
				Ring ring(event);

				event.enable();
				hits_of(hits);
				ring.drain();
				ring.forget();
				event.set_period(after);
				hits_of(after - 1);
				ring.drain();
				early += ring.samples() != 0;
				hits_of(1);
				ring.drain();
				late += ring.samples() != 1;
				hits_of(after);
				ring.drain();
				irregular += ring.samples() != 2;
			}
	EXPECT_EQ(early, 0, "periods with a sample before the Nth hit");
	EXPECT_EQ(late, 0, "periods without exactly one sample at the Nth hit");
	EXPECT_EQ(irregular, 0, "pairs of periods without exactly two samples");
}

TEST_OF("life.period.in_full", "C4",
	"after IOC_PERIOD with period N, the next overflow is at the Nth hit",
	check_period_in_full(breakpoint(hit), hit_times))

TEST("life.period.tracepoint", "C4",
     "after IOC_PERIOD with period N, a tracepoint event overflows at its Nth hit")
{
	perf_event_attr attr = software(id_of_tracepoint("syscalls/sys_enter_getppid"), 1);

	attr.type = PERF_TYPE_TRACEPOINT;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	check_period_in_full(attr, [](uint64_t times) {
		while (times--)
			syscall(SYS_getppid);
	});
}

TEST("life.period.throttle", "C4",
     "a lone breakpoint is never throttled, whatever IOC_PERIOD was called with before")
{
	constexpr int ROUNDS = 20, MANY = 100;
	SlowSampling slow;
	Event event(breakpoint(hit));
	Ring ring(event, Ring::Mode::NORMAL, 64);
	uint64_t samples = 0, throttled = 0;

	event.enable();
	for (int round = 0; round < ROUNDS; round++) {
		event.set_period(1);
		hit_times(MANY);
		event.set_period(2);
		hit_times(1);
		ring.drain();
		samples += ring.samples();
		throttled += ring.records(PERF_RECORD_THROTTLE);
		ring.forget();
	}
	EXPECT_EQ(event.count(), ROUNDS * (MANY + 1), "hits counted");
	EXPECT_EQ(samples, ROUNDS * MANY, "samples, one for each complete period");
	EXPECT_EQ(throttled, 0, "PERF_RECORD_THROTTLE records");
}

/* Without a program, and with one that accepts. */
TEST("life.limit.enable", "C10",
     "ENABLE re-enables a breakpoint that has used up its limit, and it then has no limit")
{
	for (bool attached : { false, true }) {
		Filter filter;
		Signals signals({ SETSIG });
		Event event(breakpoint(hit));

		event.async(SETSIG, gettid());
		filter.returns(1);
		if (attached)
			event.must_attach(filter);
		event.must_refresh(LIMIT);
		hit_times(HITS);
		EXPECT_EQ(event.count(), LIMIT, "hits counted until the limit");
		event.enable();
		hit_times(HITS);
		EXPECT_EQ(event.count(), LIMIT + HITS, "hits counted after ENABLE");
		EXPECT_EQ(filter.runs(), when(attached, LIMIT + HITS), "runs of the program");
		EXPECT_EQ(Signals::count(SETSIG), LIMIT + HITS, "signals");
		EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");
	}
}

TEST("life.limit.again", "C10",
     "a clock or software event that has used up its limit overflows again after each REFRESH")
{
	constexpr uint64_t TICK = 1'000'000; /* ns */
	static void *const page = mmap(nullptr, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static constexpr struct {
		const char *what;
		uint64_t config, period;
		void (*hit)();
	} kinds[] = {
		{ "overflows of a CPU clock", PERF_COUNT_SW_CPU_CLOCK, TICK, [] { spin(3); } },
		{ "overflows of a task clock", PERF_COUNT_SW_TASK_CLOCK, TICK, [] { spin(3); } },
		{ "overflows by page faults", PERF_COUNT_SW_PAGE_FAULTS, 1,
		  [] {
			  *static_cast<volatile char *>(page) = 1;
			  madvise(page, sysconf(_SC_PAGESIZE), MADV_DONTNEED);
		  } },
		{ "overflows by context switches", PERF_COUNT_SW_CONTEXT_SWITCHES, 1,
		  force_reschedule },
	};

	for (const auto &kind : kinds) {
		Filter filter;
		Event event(software(kind.config, kind.period));

		filter.returns(1);
		event.must_attach(filter);
		for (uint64_t refreshes = 1; refreshes <= HITS; refreshes++) {
			event.must_refresh(1);
			for (int i = 0; i < 100 && filter.runs() < refreshes; i++)
				kind.hit();
			EXPECT_GE(filter.runs(), refreshes, kind.what);
		}
	}
}

TEST("life.limit.disabled", "C9", "DISABLE and ENABLE keep the rest of the limit")
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));

	event.async(SETSIG, gettid());
	event.must_attach(filter);
	event.must_refresh(LIMIT);
	for (uint64_t taken = 1; taken <= LIMIT; taken++) {
		filter.returns(0);
		hit_times(HITS);
		filter.returns(1);
		hit(0);
		if (taken == LIMIT)
			break;
		event.disable();
		hit_times(HITS);
		event.enable();
		EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 0, "POLL_HUPs before the limit");
	}
	hit_times(HITS);
	expect_hits(event, filter, LIMIT * (HITS + 1));
	EXPECT_EQ(Signals::count(SETSIG), LIMIT, "signals");
	EXPECT_EQ(Signals::count(SETSIG, POLL_HUP), 1, "POLL_HUPs");
}

TEST("life.close", "C6", "closing an event releases its program; other events keep theirs")
{
	Filter filter;
	Event other(breakpoint(hit_other));

	other.enable(filter);
	for (uint64_t round = 1; round <= 3; round++) {
		Event event(breakpoint(hit));

		event.enable(filter);
		hit_times(HITS);
		event.close();
		hit_times(HITS);
		EXPECT_EQ(filter.runs(), round * HITS, "runs of the program");
	}
	hit_other(0);
	EXPECT_EQ(filter.runs(), 3 * HITS + 1, "runs of the program for the other event");
}

TEST("life.duplicate", "C6",
     "the program stays attached until the last descriptor of its event is closed")
{
	Filter filter;
	Event event(breakpoint(hit));
	Fd duplicate(dup(event.fd()));

	event.enable(filter);
	event.close();
	hit_times(HITS);
	EXPECT_EQ(filter.runs(), HITS, "runs of the program while the duplicate is open");
	duplicate.close();
	hit_times(HITS);
	EXPECT_EQ(filter.runs(), HITS, "runs of the program after both descriptors are closed");
}

TEST("life.filter_closed", "C1",
     "an attached program keeps rejecting hits after its last descriptor is closed")
{
	Signals signals({ SETSIG });
	Event event(breakpoint(hit));
	Ring ring(event);

	event.async(SETSIG, gettid());
	{
		Filter filter;

		event.must_attach(filter);
	}
	event.enable();
	hit_times(HITS);
	ring.drain();
	EXPECT_EQ(event.count(), HITS, "hits counted");
	expect_delivered(ring, 0);
}

TEST("life.exit", "C6",
     "after the monitored task exits, its hits stay counted and the link can be closed")
{
	Gate gate;
	Filter filter;
	Child child([&] {
		gate.pass();
		hit_times(HITS);
		return 0;
	});
	Event event(breakpoint(hit), child.pid());
	Fd link;

	if (filter.can_link())
		link = filter.link(event);
	else
		event.must_attach(filter);
	event.enable();
	gate.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
	expect_hits(event, filter, HITS);
	if (!link.valid()) {
		EXPECT_ERRNO(event.attach(filter), EEXIST, "attaching once more without a link");
		return;
	}
	link.close();
	EXPECT_ERRNO(event.attach(filter), 0, "attaching once more");
	EXPECT_EQ(event.count(), HITS, "hits counted at the end");
}

TEST("life.exit.wakeup", "C2",
     "poll() on the event of another task wakes up and returns POLLHUP when that task exits")
{
	constexpr int SECONDS = 8;

	for (bool attached : { false, true }) {
		Gate gate;
		Filter filter;
		Child child([&] {
			gate.pass();
			/* Wait until the parent sleeps. */
			usleep(100'000);
			return 0;
		});
		Event event(breakpoint(hit), child.pid());
		/* Without a ring, poll() returns POLLHUP at once. */
		Ring ring(event);
		pollfd poller = { event.fd(), POLLIN, 0 };

		if (attached)
			event.must_attach(filter);
		event.enable();
		gate.open();

		/* poll() also checks the event at its timeout, so check the time as well. */
		const double begun = seconds_now();

		EXPECT_EQ(poll(&poller, 1, 1000 * SECONDS), 1, "descriptors that are ready");
		EXPECT_LT(seconds_now() - begun, SECONDS, "seconds in poll()");
		EXPECT_HEX(poller.revents, POLLHUP, "revents");
		EXPECT_STATUS(child.wait(), 0, "the child");
	}
}

/*
 * Attaching or detaching affects the event that was opened and the tasks that inherit it later, but
 * not the tasks that have already inherited it. A grandchild that is forked later is affected, even
 * if its parent inherited the event before.
 */
static void check_after_fork(bool detach, bool grandchild)
{
	Filter filter;
	Gate ready, gate;
	/* The second event prevents the kernel from swapping the contexts of parent and child. */
	Event event(inherited(breakpoint(hit))), not_inherited(breakpoint(hit_other));
	Fd link;

	if (detach)
		link = filter.link(event);
	event.enable();

	Child child([&] {
		const auto hits = [] {
			hit_times(HITS);
			return 0;
		};

		link.close(); /* its copy */

		/* The same for the contexts of child and grandchild. */
		Event not_inherited(breakpoint(hit_other));

		ready.open();
		gate.pass();
		return grandchild ? Child(hits).wait() : hits();
	});

	ready.pass();
	if (detach)
		link.close();
	else
		event.must_attach(filter);
	hit_times(HITS);

	uint64_t for_parent = filter.runs();

	gate.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
	EXPECT_EQ(for_parent, when(!detach, HITS), "runs of the program for the parent");
	EXPECT_EQ(filter.runs() - for_parent, when(detach != grandchild, HITS),
		  grandchild ? "runs of the program for the grandchild"
			     : "runs of the program for the child");
	EXPECT_EQ(event.count(), 2 * HITS, "hits counted");
}

TEST_OF("life.attached_late", "C2",
	"a program that is attached after a fork does not filter hits of the child",
	check_after_fork(false, false))

TEST_OF("life.attached_late.grandchild", "C2",
	"a program that is attached after a fork filters hits of a task that the child creates",
	check_after_fork(false, true))

TEST_OF("life.detached_late", "C2",
	"a program that is detached after a fork still filters hits of the child",
	check_after_fork(true, false))

TEST_OF("life.detached_late.grandchild", "C2",
	"a program that is detached after a fork does not filter hits of a task that the child "
	"creates",
	check_after_fork(true, true))

TEST("life.no_inherit", "C3",
     "without attr.inherit, hits of threads and child processes are not counted")
{
	Filter filter;
	Event event(breakpoint(hit));

	event.enable(filter);
	std::thread([] { hit_times(HITS); }).join();

	in_child([] { hit_times(HITS); });
	expect_hits(event, filter, 0);
}

/* A process hits HITS times, and then executes cat, which echoes a byte. */
static void check_exec(bool remove_on_exec)
{
	Pipe there, back;
	Gate gate;
	Filter filter;
	Child child([&] {
		gate.pass();
		hit_times(HITS);
		dup2(there.out.get(), STDIN_FILENO);
		dup2(back.in.get(), STDOUT_FILENO);
		there.in.close();
		execlp("cat", "cat", nullptr);
		return 1;
	});
	perf_event_attr attr = breakpoint(hit);

	attr.remove_on_exec = remove_on_exec;

	Event event(attr, child.pid());
	Ring ring(event); /* without a ring, poll(2) always returns POLLHUP */
	pollfd poller = { event.fd(), POLLIN, 0 };
	char byte = 'x';

	event.enable(filter);
	poll(&poller, 1, 0);
	EXPECT_HEX(poller.revents & POLLHUP, 0, "POLLHUP in revents before exec()");
	gate.open();
	back.in.close();
	if (write(there.in.get(), &byte, 1) != 1 || read(back.out.get(), &byte, 1) != 1)
		setup_failed("cat", errno);

	poll(&poller, 1, 0);
	EXPECT_HEX(poller.revents & POLLHUP, remove_on_exec ? POLLHUP : 0,
		   "POLLHUP in revents after exec()");
	there.in.close();
	EXPECT_STATUS(child.wait(), 0, "the child");
	expect_hits(event, filter, HITS);
}

TEST("life.exec", "C6",
     "exec() removes an event only with remove_on_exec; earlier hits stay counted")
{
	check_exec(false);
	check_exec(true);
}

/* A program whose descriptors can be closed, so that only its attachment holds a reference. */
class AttachedProgram {
public:
	AttachedProgram()
		: filter_(std::in_place)
		, id_(info_of_program(filter_->prog_fd()).id)
	{
	}
	Filter &filter() { return *filter_; }
	void close() { filter_.reset(); }
	/* Closes the descriptors, and expects that the attachment keeps the program. */
	void expect_attached()
	{
		close();
		usleep(10'000);
		EXPECT_TRUE(program_exists(id_), "the program exists while it is attached");
	}
	void expect_freed() const
	{
		EXPECT_TRUE(wait_until_freed(id_),
			    "the program is freed when it is attached nowhere");
	}

private:
	std::optional<Filter> filter_;
	const uint32_t id_;
};

/* Each of the following functions ends the attachment of a program in a different way. */
static void gone_with_the_event(AttachedProgram &program)
{
	Event event(breakpoint(hit));

	event.must_attach(program.filter());
	program.expect_attached();
	event.close();
	program.expect_freed();
}

static void gone_with_the_link(AttachedProgram &program)
{
	Event event(breakpoint(hit));
	Fd link = program.filter().link(event), again(dup(link.get()));

	program.expect_attached();
	link.close();
	program.expect_attached();
	again.close();
	program.expect_freed();
}

/* The link has a reference to the event: closing the event does not free it. */
static void gone_with_both(AttachedProgram &program)
{
	Event event(breakpoint(hit));
	Fd link = program.filter().link(event);

	program.expect_attached();
	event.close();
	program.expect_attached();
	link.close();
	program.expect_freed();
}

/* Another process holds the event or the link, and calls @leave, which exits or execs. */
static void gone_with(AttachedProgram &program, bool by_link, void (*leave)())
{
	/*
	 * Skip the test here if breakpoints are unavailable: the parent waits for the child below.
	 */
	Event(breakpoint(hit)).close();

	Gate ready, gate;
	Child child([&] {
		Event event(breakpoint(hit));
		Fd link;

		if (by_link)
			link = program.filter().link(event);
		else
			event.must_attach(program.filter());
		program.expect_attached();
		event.enable();
		hit_times(HITS);
		ready.open();
		gate.pass();
		leave();
		return 0;
	});

	ready.pass();
	program.expect_attached();
	gate.open();
	program.expect_freed();
}

static void gone_with_exit(AttachedProgram &program)
{
	gone_with(program, false, [] { _exit(0); });
}

static void gone_with_exit_of_a_link(AttachedProgram &program)
{
	if (!program.filter().can_link())
		unavailable("the kernel has no BPF links for perf events (they came with 5.15)");
	gone_with(program, true, [] { _exit(0); });
}

static void gone_with_a_kill(AttachedProgram &program)
{
	gone_with(program, false, [] { raise(SIGKILL); });
}

static void gone_with_exec(AttachedProgram &program)
{
	gone_with(program, false, [] {
		execlp("sleep", "sleep", "1000", nullptr);
		fail("expected success, got %s: executing sleep", errno_name(errno).c_str());
	});
}

/*
 * exec() waits for the exit of the other thread. The SIGTRAP of that context switch is pending when
 * exec() removes the event.
 */
static void gone_with_exec_and_sigtrap(AttachedProgram &program)
{
	constexpr int TIMES = 10;
	perf_event_attr attr = with_sigtrap(software(PERF_COUNT_SW_CONTEXT_SWITCHES, 1));
	const sigset_t traps = set_of({ SIGTRAP });

	attr.exclude_kernel = 0;
	Event(attr).close(); /* skips the test without attr.sigtrap */
	program.filter().returns(1);
	for (int i = 0; i < TIMES; i++) {
		Child child([&] {
			Event event(attr);

			sigprocmask(SIG_BLOCK, &traps, nullptr);
			std::thread(pause).detach();
			event.enable(program.filter());
			execlp("true", "true", nullptr);
			return 1;
		});

		EXPECT_STATUS(child.wait(), 0, "the child");
	}
	program.close();
	program.expect_freed();
}

/*
 * The task is descheduled while it exits, because it stops for its tracer. The SIGTRAP of that
 * context switch is pending when the task closes the event.
 */
static void gone_with_exit_and_sigtrap(AttachedProgram &program)
{
	perf_event_attr attr = with_sigtrap(software(PERF_COUNT_SW_CONTEXT_SWITCHES, 1));
	const sigset_t traps = set_of({ SIGTRAP });

	attr.exclude_kernel = 0;
	Event(attr).close(); /* skips the test without attr.sigtrap */
	program.filter().returns(1);

	Tracee tracee([&] {
		Event event(attr);

		sigprocmask(SIG_BLOCK, &traps, nullptr);
		event.enable(program.filter());
		_exit(0);
		return 1;
	});

	if (ptrace(PTRACE_SETOPTIONS, tracee.pid(), nullptr, PTRACE_O_TRACEEXIT))
		setup_failed("PTRACE_SETOPTIONS", errno);
	tracee.resume(PTRACE_CONT);
	EXPECT_VALUE(tracee.status() >> 8, SIGTRAP | PTRACE_EVENT_EXIT << 8, "the stop at exit");
	tracee.resume(PTRACE_CONT);
	EXPECT_STATUS(tracee.status(), 0, "the child");
	EXPECT_GT(program.filter().runs(), 0, "context switches at which the program ran");
	program.close();
	program.expect_freed();
}

/* Children and grandchildren that have inherited the event exit before it is closed. */
static void gone_with_children(AttachedProgram &program)
{
	Event event(inherited(breakpoint(hit)));

	event.enable(program.filter());
	program.expect_attached();
	for (int i = 0; i < 10; i++) {
		Child child([] {
			std::thread([] { hit_times(1); }).join();
			return Child([] { return 0; }).wait();
		});

		EXPECT_STATUS(child.wait(), 0, "the child");
	}
	event.close();
	program.expect_freed();
}

/*
 * The fork fails because the child's id is in use, but only after the child has inherited the
 * event.
 */
static void gone_after_failed_forks(AttachedProgram &program)
{
	const pid_t taken = getpid();
	clone_args args = {};
	Event event(inherited(breakpoint(hit)));

	args.exit_signal = SIGCHLD;
	args.set_tid = reinterpret_cast<uintptr_t>(&taken);
	args.set_tid_size = 1;
	event.must_attach(program.filter());
	program.expect_attached();
	for (int i = 0; i < 10; i++) {
		if (syscall(SYS_clone3, &args, sizeof(args)) >= 0)
			_exit(1);
		if (errno == EPERM)
			unavailable("no permission to choose the id of a child");
		EXPECT_ERRNO(errno, EEXIST, "fork with an id that is in use");
	}
	event.close();
	program.expect_freed();
}

/*
 * The kernel refuses a breakpoint at a kernel address to a task without CAP_SYS_ADMIN. If the task
 * has inherited one and then gives up the capability, its forks fail while the event is created.
 */
static void gone_after_refused_forks(AttachedProgram &program)
{
	constexpr uintptr_t UNUSED = -4096ul; /* the page of ERR_PTR() */
	perf_event_attr attr = inherited(
		breakpoint(Access::WRITE, reinterpret_cast<const void *>(UNUSED), sizeof(long)));

	if (!WATCHES_KERNEL)
		unavailable("a task has no breakpoints at kernel addresses on this architecture");
	attr.exclude_kernel = 0;

	Event event(attr);

	event.must_attach(program.filter());
	program.expect_attached();
	in_child([] {
		become(NOBODY, 0);
		for (int i = 0; i < 10; i++) {
			const pid_t pid = fork();

			if (!pid)
				_exit(0);
			EXPECT_ERRNO(pid < 0 ? errno : 0, EPERM, "fork without CAP_SYS_ADMIN");
		}
	});
	event.close();
	program.expect_freed();
}

/* Closing an event also removes the events that were inherited from it. */
static void gone_before_children(AttachedProgram &program)
{
	Gate gate;
	Event event(inherited(breakpoint(hit)));

	event.must_attach(program.filter());
	program.expect_attached();

	Child child([&] {
		event.close();
		gate.pass();
		return 0;
	});

	event.close();
	program.expect_freed();
	gate.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
}

/*
 * Closing a link detaches its program from the event that was opened. A child that has inherited
 * the program keeps it until it exits. If all events of a task are inherited, the kernel may swap
 * them with those of the child on a context switch, and the child's exit then removes the event of
 * its parent: see life.inherited.slots. An event that is not inherited prevents that.
 */
static void gone_after_a_child(AttachedProgram &program)
{
	Gate ready, gate;
	Event not_inherited(breakpoint(hit));
	Event event(inherited(breakpoint(hit)));
	Fd link = program.filter().link(event);

	program.expect_attached();

	Child child([&] {
		link.close(); /* its copy */
		ready.open();
		gate.pass();
		return 0;
	});

	ready.pass();
	link.close();
	program.expect_attached();
	gate.open();
	EXPECT_STATUS(child.wait(), 0, "the child");
	program.expect_freed();
}

/* The event has another program. Both ways to attach are refused. */
static void gone_when_refused(AttachedProgram &program)
{
	Filter other;
	Event event(breakpoint(hit));

	event.must_attach(other);
	EXPECT_ERRNO(event.attach(program.filter()), EEXIST, "attaching by ioctl");
	if (program.filter().can_link()) {
		int err = 0;

		EXPECT_FALSE(program.filter().link(event, &err).valid(), "a link was created");
		EXPECT_ERRNO(err, EEXIST, "attaching by link");
	}
	program.close();
	program.expect_freed();
}

static const struct {
	const char *name, *says;
	void (*body)(AttachedProgram &program);
} gone[] = {
	{ "event", "a program is freed when its event is closed", gone_with_the_event },
	{ "link", "a program is freed when the last descriptor of its link is closed",
	  gone_with_the_link },
	{ "event_and_link", "a program is freed when its link is closed after its event",
	  gone_with_both },
	{ "exit", "a program is freed when the process that holds its event exits",
	  gone_with_exit },
	{ "exit_link", "a program is freed when the process that holds its link exits",
	  gone_with_exit_of_a_link },
	{ "kill", "a program is freed when the process that holds its event is killed",
	  gone_with_a_kill },
	{ "exec", "a program is freed when exec() closes its event", gone_with_exec },
	{ "exec_sigtrap",
	  "a program is freed when exec() removes its event while a SIGTRAP is pending",
	  gone_with_exec_and_sigtrap },
	{ "exit_sigtrap",
	  "a program is freed when the task with its event exits while a SIGTRAP is pending",
	  gone_with_exit_and_sigtrap },
	{ "children", "a program is freed with its event after the children that inherited it exit",
	  gone_with_children },
	{ "failed_forks",
	  "a program is freed with its event after forks that inherited it and then failed",
	  gone_after_failed_forks },
	{ "refused_forks",
	  "a program is freed with its event after forks that fail because of the event",
	  gone_after_refused_forks },
	{ "before_children",
	  "closing an event frees its program while children that inherited it run",
	  gone_before_children },
	{ "after_child", "a detached program is freed when the child that inherited it exits",
	  gone_after_a_child },
	{ "refused", "a program is freed after its attachment failed with EEXIST",
	  gone_when_refused },
};

static const bool added_gone = [] {
	for (auto &g : gone)
		add_test({ std::string("life.gone.") + g.name, "C8", g.says, [&g] {
				  AttachedProgram program;

				  g.body(program);
			  } });
	return true;
}();
