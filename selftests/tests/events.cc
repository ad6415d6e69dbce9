// SPDX-License-Identifier: GPL-2.0
/* C1, C2 and C3 for all kinds of events that can have a program. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cerrno>
#include <optional>

#include "lib/clock.h"
#include "lib/sysctl.h"
#include "tests/common.h"

static const size_t PAGE = sysconf(_SC_PAGESIZE);

/* The hits that an event and its program have counted, and the effects of these hits. */
struct Delivered {
	uint64_t count, runs, samples, signals;
};

using Work = void (*)(const Filter &filter);

NOINLINE_NOCLONE static Delivered deliver_once(const perf_event_attr &attr, Verdict verdict,
					       Work work)
{
	Filter filter;
	Signals signals({ SETSIG });
	Event event(attr);
	Ring ring(event);

	event.async(SETSIG, gettid());
	enable(event, filter, verdict);
	work(filter);
	event.disable();
	ring.drain();
	return { event.count(), filter.runs(), ring.samples(), Signals::count(SETSIG) };
}

/*
 * Code that runs for the first time faults in its text, data and stack, and the number of faults
 * depends on the linker and the page cache. So measure twice from the same stack frame, and return
 * only the second result.
 */
static Delivered deliver(const perf_event_attr &attr, Verdict verdict, Work work)
{
	Delivered got;

	for (int run = 0; run < 2; run++)
		got = deliver_once(attr, verdict, work);
	return got;
}

/*
 * Software events of a task, with work for which they count HITS. The number of clock ticks or
 * context switches is not predictable, but the program must have run for all that were counted.
 */
static long voluntary_switches()
{
	rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

/* On a slow kernel a short sleep can be over before the task has been switched out. */
static void sleep_often(const Filter &)
{
	for (long end = voluntary_switches() + long(HITS); voluntary_switches() < end;)
		usleep(1000);
}

static void migrate(const Filter &)
{
	for (uint64_t i = 0; i < HITS; i++)
		run_on(usable_cpus()[i % 2]);
}

/* Untouched private pages: anonymous ones, or those of a file. */
class Pages {
public:
	explicit Pages(size_t size, int fd = -1, off_t offset = 0)
		: size_(size)
		, base_(mmap(nullptr, size, PROT_READ | (fd < 0 ? PROT_WRITE : 0),
			     MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, offset))
	{
		if (base_ == MAP_FAILED)
			setup_failed("mmap", errno);
		/*
		 * A fault must map only one page: no huge page, which may extend beyond these
		 * pages, and no readahead. Without huge pages in the kernel madvise() fails, which
		 * is fine.
		 */
		madvise(base_, size, fd < 0 ? MADV_NOHUGEPAGE : MADV_RANDOM);
	}
	~Pages() { munmap(base_, size_); }
	Pages(const Pages &) = delete;

	volatile char *at(size_t offset) const { return static_cast<char *>(base_) + offset; }

private:
	size_t size_;
	void *base_;
};

static void fault_on_new_pages(const Filter &)
{
	const Pages pages(HITS * PAGE);

	for (uint64_t i = 0; i < HITS; i++)
		*pages.at(i * PAGE) = 1;
}

static uint64_t major_faults()
{
	rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_majflt;
}

/*
 * A file of @size whose last pages are not in the page cache, because they were never accessed.
 * Without a writable disk it is this program's executable, which ends with debug information.
 */
static Fd cold_file(off_t size)
{
	Fd file(open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));

	if (file.valid() && !ftruncate(file.get(), size))
		return file;
	file = Fd(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
	return file;
}

/* A fault on a page that is not cached is a major fault. The distance prevents fault-around. */
static void fault_on_a_file(const Filter &)
{
	const size_t APART = 16 * PAGE;
	Fd file = cold_file(HITS * APART);
	off_t first = (lseek(file.get(), 0, SEEK_END) - off_t(HITS * APART)) & -off_t(PAGE);

	if (first < 0)
		unavailable("there is no file that is large enough");

	const Pages pages(HITS * APART, file.get(), first);
	uint64_t before = major_faults();

	for (uint64_t i = 0; i < HITS; i++)
		(void)*pages.at(i * APART);
	if (major_faults() - before != HITS)
		unavailable("the pages of the file are cached");
}

/* On a busy machine a clock may tick late. */
static void spin_a_while(const Filter &filter)
{
	constexpr long ENOUGH_MILLISECONDS = 5000;

	for (long waited = 0; filter.runs() < HITS && waited < ENOUGH_MILLISECONDS; waited++)
		spin(1);
}

/* The unit of the event's count: the HITS of the work, overflows, or time. */
enum class Counts { HITS_OF_WORK, OVERFLOWS, TIME };

static const struct Kind {
	const char *name, *title; /* title: the name in perf(1) */
	uint32_t type;
	uint64_t config;
	uint64_t period;
	bool in_kernel; /* exclude_kernel must be off */
	Work work;
	Counts counts;
	int cpus; /* that are required */
} kinds[] = {
	{ "cpu_clock", "cpu-clock in user mode", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK,
	  1000000, false, spin_a_while, Counts::TIME, 1 },
	{ "cpu_clock_kernel", "cpu-clock in user and kernel mode", PERF_TYPE_SOFTWARE,
	  PERF_COUNT_SW_CPU_CLOCK, 1000000, true, spin_a_while, Counts::TIME, 1 },
	{ "task_clock", "task-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK, 1000000, false,
	  spin_a_while, Counts::TIME, 1 },
	{ "page_faults", "page-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, 1, false,
	  fault_on_new_pages, Counts::HITS_OF_WORK, 1 },
	{ "minor_faults", "minor-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN, 1,
	  false, fault_on_new_pages, Counts::HITS_OF_WORK, 1 },
	{ "major_faults", "major-faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MAJ, 1,
	  false, fault_on_a_file, Counts::HITS_OF_WORK, 1 },
	{ "context_switches", "context-switches", PERF_TYPE_SOFTWARE,
	  PERF_COUNT_SW_CONTEXT_SWITCHES, 1, true, sleep_often, Counts::OVERFLOWS, 1 },
	{ "cpu_migrations", "cpu-migrations", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_MIGRATIONS, 1,
	  true, migrate, Counts::HITS_OF_WORK, 2 },
	{ "instructions", "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 1000000,
	  false, spin_a_while, Counts::TIME, 1 },
	{ "cycles", "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, 1000000, false,
	  spin_a_while, Counts::TIME, 1 },
};

static void check_kind(const Kind &kind, bool accept)
{
	if (usable_cpus().size() < size_t(kind.cpus))
		unavailable("the test needs two CPUs");
	/* The first migration starts from this CPU. */
	run_on(usable_cpus()[kind.cpus - 1]);
	perf_event_attr attr = counter(kind.type, kind.config);

	attr.sample_period = kind.period;
	attr.exclude_kernel = !kind.in_kernel;

	Delivered got = deliver(attr, { true, accept }, kind.work);

	EXPECT_GT(got.runs, 0, "runs of the program");
	EXPECT_EQ(got.samples, accept ? got.runs : 0, "samples, one for each accepted run");
	if (kind.counts == Counts::TIME) {
		/* Two late ticks can share the irq_work that sends the signal. */
		EXPECT_GE(got.signals, accept ? (got.runs + 1) / 2 : 0, "signals");
		EXPECT_LE(got.signals, accept ? got.runs : 0, "signals");
		EXPECT_GE(got.count, (got.runs - 1) * kind.period, "ns, cycles or instructions");
	} else {
		EXPECT_EQ(got.signals, accept ? got.runs : 0, "signals, one for each accepted run");
		EXPECT_EQ(got.count, got.runs, "hits counted, as many as runs of the program");
	}
	if (kind.counts == Counts::HITS_OF_WORK)
		EXPECT_EQ(got.count, HITS, "hits counted");
}

static const bool added = [] {
	for (const Kind &kind : kinds) {
		std::string name = std::string("events.") + kind.name, title = kind.title;

		add_test({ name + ".rejected", "C1",
			   "a rejected overflow of " + title + " has no side effect",
			   [&kind] { check_kind(kind, false); } });
		add_test({ name + ".accepted", "C2",
			   "an accepted overflow of " + title + " is delivered",
			   [&kind] { check_kind(kind, true); } });
	}
	return true;
}();

/* Only page faults have an address: for the other software events, ctx->addr must be 0. */
static void check_no_address(Program which)
{
	uint64_t stray = 0;

	for (const Kind &kind : kinds) {
		if (kind.type != PERF_TYPE_SOFTWARE || kind.work == fault_on_new_pages ||
		    kind.work == fault_on_a_file || usable_cpus().size() < size_t(kind.cpus))
			continue;
		for (uint64_t sample_type : { 0ull, 0ull | PERF_SAMPLE_ADDR }) {
			perf_event_attr attr = counter(kind.type, kind.config);
			Filter filter(which);

			run_on(usable_cpus()[kind.cpus - 1]);
			attr.sample_period = kind.period;
			attr.exclude_kernel = !kind.in_kernel;
			attr.sample_type = sample_type;

			Event event(attr);

			event.enable(filter);
			kind.work(filter);
			event.disable();
			EXPECT_GT(filter.runs(), 0, "runs of the program");
			if (filter.snapshot().stray)
				note("%s%s: %llu of %lu runs saw an address, the last %#llx",
				     kind.name, sample_type ? " with PERF_SAMPLE_ADDR" : "",
				     filter.snapshot().stray, filter.runs(),
				     filter.snapshot().addr);
			stray += filter.snapshot().stray;
		}
	}
	EXPECT_EQ(stray, 0, "runs that saw an address where there is none");
}

TEST_OF("events.no_address.seen", "C15",
	"ctx->addr is 0 for an event without an address, in a program that can see the sample",
	check_no_address(Program::GETS_STACK))

TEST_OF("events.no_address.unseen", "C15",
	"ctx->addr is 0 for an event without an address, in a program that cannot see the sample",
	check_no_address(Program::LOOKS))

/* Faults in user mode, below @frames stack frames, which a callchain shows. */
[[gnu::noinline]] static void fault_below(int frames, volatile char *page)
{
	asm volatile("" : : "r"(__builtin_frame_address(0)));
	if (frames)
		fault_below(frames - 1, page);
	else
		*page = 1;
	asm volatile("" : : : "memory");
}

static void fault_deep()
{
	constexpr int FRAMES = 4;
	const Pages pages(HITS * PAGE);

	for (uint64_t i = 0; i < HITS; i++)
		fault_below(FRAMES, pages.at(i * PAGE));
}

static perf_event_attr faults(uint64_t sample_type)
{
	perf_event_attr attr = counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS);

	attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | sample_type;
	attr.exclude_callchain_kernel = 1;
	return attr;
}

/* Two events sample one fault: what the second samples, and the number of words in its sample. */
static const struct {
	const char *what;
	uint64_t sample_type;
	size_t words;
} others[] = {
	{ "IP", 0, 3 },
	{ "a callchain of 1", PERF_SAMPLE_CALLCHAIN, 3 + 3 },
	{ "4 registers", PERF_SAMPLE_REGS_USER, 3 + 5 },
	{ "the address", PERF_SAMPLE_ADDR, 3 + 1 },
};

/* Expects that the event has a sample for each of its hits, without data from the other event. */
static void check_own_samples(const char *first, const char *what, const Event &event, Ring &ring,
			      size_t words)
{
	uint64_t size = 0, id = 0, chain = 0, addr = 0;
	auto samples = ring.take_samples();

	for (auto &sample : samples) {
		size += sample.size() != words;
		id += sample[1] != event.id();
		/* The number of frames, their kind, and the IP again. */
		if (words == 6 && sample.size() == words)
			chain += sample[3] != 2 || sample[4] != uint64_t(PERF_CONTEXT_USER) ||
				 sample[5] != sample[2];
		if (words == 4 && sample.size() == words)
			addr += !sample[3];
	}
	if (size || id || chain || addr || samples.size() != event.count())
		note("%s, other event samples %s: %zu samples of %lu hits, %lu wrong sizes, "
		     "%lu wrong ids, %lu wrong callchains, %lu without an address",
		     first, what, samples.size(), event.count(), size, id, chain, addr);
	EXPECT_EQ(size + id + chain + addr, 0, "samples that differ from those of a lone event");
	EXPECT_EQ(samples.size(), event.count(), "samples");
}

/* Two events sample the same faults. The one with the program is opened first, or last. */
static void check_shared_sample(const char *which, const Filter *filter, bool delivers)
{
	perf_event_attr first = faults(PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER);

	first.sample_regs_user = 1;
	for (auto &o : others) {
		perf_event_attr attr = faults(o.sample_type);

		attr.sample_max_stack = o.sample_type & PERF_SAMPLE_CALLCHAIN ? 1 : 0;
		attr.sample_regs_user = o.sample_type & PERF_SAMPLE_REGS_USER ? 0xf : 0;
		for (bool opened_first : { true, false }) {
			std::optional<Event> one, other;
			std::string text = std::string(which) +
					   (opened_first ? ", opened first" : ", opened last");

			/* The order of opening determines the kernel's order of events. */
			if (opened_first)
				one.emplace(first);
			other.emplace(attr);
			if (!opened_first)
				one.emplace(first);

			Ring ring(*other), one_ring(*one);
			const uint64_t runs = filter ? filter->runs() : 0;

			if (filter)
				one->must_attach(*filter);
			one->enable();
			other->enable();
			fault_deep();
			other->disable();
			one->disable();
			one_ring.drain();
			EXPECT_GE(other->count(), HITS, "page faults counted");
			if (filter)
				EXPECT_EQ(filter->runs() - runs, one->count(),
					  "runs of the program");
			EXPECT_EQ(one_ring.samples(), delivers ? one->count() : 0,
				  "samples of the event with callchain and registers");
			check_own_samples(text.c_str(), o.what, *other, ring, o.words);
		}
	}
}

static void check_shared_with_program(bool accept)
{
	for (Program which : { Program::ON_OVERFLOW, Program::GETS_STACK }) {
		Filter filter(which);

		filter.returns(accept);
		check_shared_sample(which == Program::GETS_STACK ? "program with bpf_get_stack()"
								 : "program without helpers",
				    &filter, accept);
	}
}

TEST_OF("events.shared_sample.rejected", "C1",
	"a rejected hit leaves no data in the sample of another event on the same fault",
	check_shared_with_program(false))

TEST_OF("events.shared_sample.accepted", "C2",
	"an accepted hit leaves no data in the sample of another event on the same fault",
	check_shared_with_program(true))

/*
 * The kernel does not know that the target of a tail call needs a callchain, and prepares none. The
 * previous event in the list leaves a callchain of kernel frames behind, which must not be used.
 */
TEST("events.shared_sample.callee", "C15",
     "a program reached by a tail call does not get another event's stack")
{
	perf_event_attr attr = faults(PERF_SAMPLE_CALLCHAIN), of_kernel = attr;

	of_kernel.exclude_callchain_kernel = 0;
	of_kernel.exclude_callchain_user = 1;
	for (Program which : { Program::GETS_STACK, Program::GETS_STACK_ID }) {
		Filter kernel(Program::GETS_STACK), caller(Program::TAIL_CALLS), callee(which);

		caller.tail_calls(callee);

		/* The event that is opened last is handled first. */
		Event event(attr), first(of_kernel);

		first.must_attach(kernel);
		event.must_attach(caller);
		first.enable();
		event.enable();
		fault_deep();
		event.disable();
		first.disable();
		EXPECT_GE(event.count(), HITS, "page faults counted");
		EXPECT_EQ(callee.runs(), event.count(), "runs of the tail call's target");
		if (which == Program::GETS_STACK)
			EXPECT_GT(callee.snapshot().stack_bytes, 0, "bytes from bpf_get_stack()");
		else
			EXPECT_GE(callee.snapshot().stack_id, 0, "from bpf_get_stackid()");
	}
}

TEST("events.shared_sample.bare", "C2",
     "a hit without a program leaves no data in the sample of another event on the same fault")
{
	check_shared_sample("no program", nullptr, true);
}

static void hit_work(const Filter &)
{
	for (uint64_t i = 0; i < HITS; i++)
		hit(i);
}

/* Attributes of a breakpoint, and how often it overflows for HITS calls. */
static const struct Variant {
	const char *name, *says;
	void (*set)(perf_event_attr &attr);
	uint64_t overflows;
} variants[] = {
	{ "pinned", "runs on every hit of a pinned breakpoint", [](auto &attr) { attr.pinned = 1; },
	  HITS },
	{ "exclusive", "runs on every hit of an exclusive breakpoint",
	  [](auto &attr) { attr.exclusive = 1; }, HITS },
	{ "precise", "runs on every hit of a breakpoint with precise_ip",
	  [](auto &attr) { attr.precise_ip = 3; }, HITS },
	{ "exclude_idle", "runs on every hit of a breakpoint with exclude_idle",
	  [](auto &attr) { attr.exclude_idle = 1; }, HITS },
	{ "period_1", "runs on every hit with a sample_period of 1",
	  [](auto &attr) { attr.sample_period = 1; }, HITS },
	{ "period_4", "runs on every fourth hit with a sample_period of 4",
	  [](auto &attr) { attr.sample_period = 4; }, HITS / 4 },
	{ "period_7", "runs on every seventh hit with a sample_period of 7",
	  [](auto &attr) { attr.sample_period = 7; }, HITS / 7 },
	{ "period_large", "does not run with a sample_period above the number of hits",
	  [](auto &attr) { attr.sample_period = HITS + 1; }, 0 },
	/* Every hit then overflows, and its sample has a period of 1. */
	{ "period_sampled", "runs on every hit with PERF_SAMPLE_PERIOD, whatever the sample_period",
	  [](auto &attr) {
		  attr.sample_period = 4;
		  attr.sample_type |= PERF_SAMPLE_PERIOD;
	  },
	  HITS },
};

static const bool added_variants = [] {
	for (const Variant &v : variants) {
		auto check = [&v](Verdict verdict) {
			perf_event_attr attr = breakpoint(hit);
			bool delivers = verdict.delivers();

			v.set(attr);

			Delivered got = deliver(attr, verdict, hit_work);

			EXPECT_EQ(got.count, HITS, "hits counted");
			EXPECT_EQ(got.runs, verdict.attached ? v.overflows : 0,
				  "runs of the program");
			EXPECT_EQ(got.samples, delivers ? v.overflows : 0, "samples");
			EXPECT_EQ(got.signals, delivers ? v.overflows : 0, "signals");
		};
		std::string name = std::string("events.") + v.name;

		add_test({ name + ".rejected", "C1", std::string("a rejecting program ") + v.says,
			   [=] { check(rejects); } });
		add_test({ name + ".accepted", "C2", std::string("an accepting program ") + v.says,
			   [=] {
				   check(no_program);
				   check({ true, 1 });
			   } });
	}
	return true;
}();

/* With attr.freq the number of overflows depends on time. The program must decide on each. */
static void check_frequency(bool accept)
{
	perf_event_attr attr = breakpoint(hit);

	attr.freq = 1;
	attr.sample_freq = 1000;

	const EnoughSampling enough(attr.sample_freq);
	Delivered got = deliver(attr, { true, accept }, hit_work);

	EXPECT_EQ(got.count, HITS, "hits counted");
	EXPECT_GT(got.runs, 0, "runs of the program");
	EXPECT_EQ(got.samples, accept ? got.runs : 0, "samples, one for each accepted run");
	EXPECT_EQ(got.signals, accept ? got.runs : 0, "signals, one for each accepted run");
}

TEST_OF("events.freq.rejected", "C1",
	"with attr.freq, a rejected overflow of a breakpoint has no side effect",
	check_frequency(false))

TEST_OF("events.freq.accepted", "C2",
	"with attr.freq, every accepted overflow of a breakpoint is delivered",
	check_frequency(true))
