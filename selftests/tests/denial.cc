// SPDX-License-Identifier: GPL-2.0
/* Denial of service by events and their programs: C15. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>

#include "lib/clock.h"
#include "lib/gate.h"
#include "tests/common.h"

/* The fastest of @times hits, so that other load on the machine does not matter. */
static double seconds_of_hit(int times)
{
	double best = 1e9;

	while (times--) {
		const double begun = seconds_now();

		hit(0);
		best = std::min(best, seconds_now() - begun);
	}
	return best;
}

/* The durations of some sleeps of 1 ms: the median and the longest. */
struct Sleep {
	double usual, longest;
};

static Sleep sleep_a_little()
{
	constexpr int SLEEPS = 20;
	double took[SLEEPS];

	for (double &t : took) {
		const double begun = seconds_now();

		usleep(1000);
		t = seconds_now() - begun;
	}
	std::sort(std::begin(took), std::end(took));
	return { took[SLEEPS / 2], took[SLEEPS - 1] };
}

/*
 * A program may run for a long time with interrupts off, and users who may load one can keep a CPU
 * busy. Between two hits, however, other tasks must be able to run. So the bounds are multiples of
 * the duration of a hit, plus the delay on a busy CPU.
 */
TEST("denial.long_program", "C15",
     "a task whose hits run a long program can be killed, and other tasks still get CPU time")
{
	constexpr double LONG = 0.03; /* intended seconds per hit */
	static char block[FILTER_BLOCK] = { 1 };
	const int cpu = usable_cpus().front();
	Filter filter(Program::WORKS);
	double idle, hit_length;

	run_on(cpu);
	{
		Event event(breakpoint(hit));

		event.enable(filter);
		filter.works(block, 0);
		idle = seconds_of_hit(1000);
		filter.works(block, 1);

		double turn = std::max(seconds_of_hit(20) - idle, 1e-9);
		uint64_t turns = std::clamp<uint64_t>(LONG / turn, 1, FILTER_LONGEST);

		filter.works(block, turns);
		hit_length = seconds_of_hit(3);
		note("a hit takes %.3f ms with %lu loops in the program, %.3f ms without",
		     hit_length * 1e3, turns, idle * 1e3);
	}
	EXPECT_GT(hit_length, 10 * idle, "seconds per hit of the long program");

	Child busy([] {
		for (;;)
			hit(0);
		return 0;
	});
	const Sleep before = sleep_a_little();
	Event event(breakpoint(hit), busy.pid());

	event.enable(filter);
	while (event.count() < 3)
		usleep(1000);

	const uint64_t hits = event.count();
	const Sleep now = sleep_a_little();
	const double begun = seconds_now();

	EXPECT_GT(event.count(), hits, "hits counted after the sleeps");
	kill(busy.pid(), SIGKILL);
	busy.wait();

	const double died = seconds_now() - begun;

	note("a sleep of 1 ms takes %.1f ms, at most %.1f ms; without hits %.1f ms, at most "
	     "%.1f ms; the killed task exited after %.1f ms",
	     now.usual * 1e3, now.longest * 1e3, before.usual * 1e3, before.longest * 1e3,
	     died * 1e3);
	EXPECT_LT(now.usual, 10 * (hit_length + before.longest) + 0.1,
		  "seconds for a sleep of 1 ms in another task");
	EXPECT_LT(died, 10 * (hit_length + before.longest) + 1,
		  "seconds until the killed task exits");
}

/*
 * Each hit sends a signal, and sending the signal hits the breakpoint again. The limit ends the
 * loop if the kernel does not. With a ring, the sample of a hit asks for the signal as well.
 */
static void check_own_signal(bool sampled)
{
	constexpr uint64_t FOR_EVER = 1000;
	const perf_event_attr attr = breakpoint_in_kernel("send_sigio");
	Filter filter;
	Signals signals({ SETSIG, SIGIO });
	Pipe pipe;

	run_on(usable_cpus().front());

	Event event(attr, -1, usable_cpus().front());
	std::optional<Ring> ring;

	if (sampled)
		ring.emplace(event);
	event.async(SETSIG, gettid());
	filter.returns(1);
	event.must_attach(filter);
	if (fcntl(pipe.out.get(), F_SETOWN, getpid()) || fcntl(pipe.out.get(), F_SETFL, O_ASYNC))
		setup_failed("F_SETOWN and O_ASYNC of a pipe", errno);
	event.must_refresh(FOR_EVER);
	/* The SIGIO of the pipe is the first hit. */
	if (write(pipe.in.get(), "", 1) != 1)
		setup_failed("write to a pipe", errno);
	usleep(100'000);
	EXPECT_EQ(Signals::count(SIGIO), 1, "signals of the pipe");
	EXPECT_GT(event.count(), 0, "hits of send_sigio()");
	EXPECT_LT(event.count(), FOR_EVER, "hits of send_sigio()");
	EXPECT_GT(Signals::count(SETSIG), 0, "signals for hits");
	if (sampled) {
		event.disable();
		ring->drain();
		EXPECT_EQ(ring->samples(), event.count(), "samples, as many as hits");
	}
}

TEST_OF("denial.own_signal", "C15",
	"a breakpoint on send_sigio(), which sends the breakpoint's own signal, does not loop "
	"forever",
	check_own_signal(false))

TEST_OF("denial.own_signal.ring", "C15",
	"a breakpoint on send_sigio() does not loop forever if each hit writes a sample, which "
	"sends the breakpoint's own signal, too",
	check_own_signal(true))

TEST("denial.own_signal.limit", "C2",
     "a breakpoint on send_sigio(), which its own signal hits, sends POLL_HUP at its limit")
{
	const perf_event_attr attr = breakpoint_in_kernel("send_sigio");
	const int cpu = usable_cpus().front();
	Signals signals({ SETSIG, SIGIO });
	Pipe pipe;

	run_on(cpu);
	if (fcntl(pipe.out.get(), F_SETOWN, getpid()) || fcntl(pipe.out.get(), F_SETFL, O_ASYNC))
		setup_failed("F_SETOWN and O_ASYNC of a pipe", errno);
	for (int limit : { 1, 2 }) {
		Event event(attr, -1, cpu);
		const uint64_t before = Signals::count(SETSIG, POLL_HUP);

		event.async(SETSIG, gettid());
		event.must_refresh(limit);
		/* The SIGIO of the pipe is the first hit. */
		if (write(pipe.in.get(), "", 1) != 1)
			setup_failed("write to a pipe", errno);
		usleep(100'000);
		EXPECT_EQ(event.count(), limit, "hits of send_sigio()");
		EXPECT_EQ(Signals::count(SETSIG, POLL_HUP) - before, 1, "POLL_HUPs");
	}
}

static constexpr uint64_t ENOUGH = 1000;
static volatile uint64_t word;
static int faults_fd;
static std::atomic<uint64_t> signals_for_faults;

static void on_fault(int)
{
	if (++signals_for_faults == ENOUGH)
		ioctl(faults_fd, PERF_EVENT_IOC_DISABLE, 0);
}

/*
 * A fault on a ring under the VMA lock must be retried under mmap_lock, because the ring's vm_ops
 * have no map_pages. If it returns to user mode for a signal instead, and the signal comes from an
 * event that counts page faults, the task faults again and gets the next signal, forever.
 */
TEST("denial.fault_loop", "C15",
     "a page fault that sends its own task a signal does not loop forever")
{
	const perf_event_attr faults = software(PERF_COUNT_SW_PAGE_FAULTS, 1);

	signal(SIGIO, on_fault);
	raise(SIGIO); /* fault in the handler and its stack */
	signals_for_faults = 0;

	Event event(breakpoint(Access::WRITE, &word, sizeof(word))), counts(faults);
	Ring ring(event);

	faults_fd = counts.fd();
	counts.async(SIGIO, gettid());
	counts.enable();
	ring.drain();
	counts.disable();
	note("%lu signals", signals_for_faults.load());
	EXPECT_GT(signals_for_faults, 0, "signals for page faults");
	EXPECT_LT(signals_for_faults, ENOUGH, "signals for page faults");
}

/* Not inlined: the first call faults in all code that the second one executes. */
NOINLINE_NOCLONE static void enable_and_store(Event &event, volatile uint64_t *to)
{
	event.enable();
	*to = 0;
}

static Event faults_with_address(uint64_t config, pid_t pid)
{
	perf_event_attr attr = software(config, 1);

	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.exclude_kernel = attr.exclude_hv = 1;
	return Event(attr, pid);
}

/*
 * As in denial.fault_loop, the fault must be retried under mmap_lock, but the signal is SIGKILL. In
 * a killed task the wait for that lock fails, and the kernel would take the fault for an invalid
 * one.
 */
TEST("denial.fatal_fault", "C15",
     "a task that the signal for its page fault kills exits without retrying the fault")
{
	if (kernel_before(6, 6))
		unavailable("the kernel does not try faults on a ring under the VMA lock (it does "
			    "from 6.6 on)");

	auto &address = shared_with_children<std::atomic<volatile uint64_t *>>();

	for (bool fatal : { false, true }) {
		Gate ready, go;
		Child child([&] {
			Event other(software(PERF_COUNT_SW_DUMMY));
			Event kills(software(PERF_COUNT_SW_PAGE_FAULTS, 1));
			const size_t page = sysconf(_SC_PAGESIZE);
			void *ring = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED,
					  other.fd(), 0);
			volatile uint64_t on_stack;

			if (ring == MAP_FAILED)
				setup_failed("mmap of a ring buffer", errno);
			address = reinterpret_cast<volatile uint64_t *>(
				&static_cast<perf_event_mmap_page *>(ring)->data_tail);
			kills.async(SIGKILL, gettid());
			ready.open();
			go.pass();
			enable_and_store(other, &on_stack);
			enable_and_store(fatal ? kills : other, address);
			return 0;
		});

		ready.pass();

		Event begun = faults_with_address(PERF_COUNT_SW_PAGE_FAULTS, child.pid());
		Event handled = faults_with_address(PERF_COUNT_SW_PAGE_FAULTS_MIN, child.pid());
		Ring ring_of_begun(begun), ring_of_handled(handled);

		begun.enable();
		handled.enable();
		go.open();
		EXPECT_STATUS(child.wait(), fatal ? SIGKILL : 0, "the task that faults");
		ring_of_begun.drain();
		ring_of_handled.drain();
		EXPECT_EQ(ring_of_begun.samples_at(address), 1, "page faults on the ring");
		EXPECT_EQ(ring_of_handled.samples_at(address), fatal ? 0 : 1,
			  "page faults on the ring that were handled");
	}
}
