// SPDX-License-Identifier: GPL-2.0
/*
 * C2: the sample of an accepted hit equals that of an event without a program, word by word. Both
 * events have the same attributes and the same hits; only their ids and times may differ.
 */
#include <sys/mman.h>
#include <sys/utsname.h>
#include <ucontext.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "lib/clock.h"
#include "lib/pmu.h"
#include "lib/sysctl.h"
#include "tests/common.h"

/* The one-word fields, which precede all others, in the order of perf_event_open(2). */
static constexpr uint64_t one_word[] = {
	PERF_SAMPLE_IDENTIFIER, PERF_SAMPLE_IP,	  PERF_SAMPLE_TID,	 PERF_SAMPLE_TIME,
	PERF_SAMPLE_ADDR,	PERF_SAMPLE_ID,	  PERF_SAMPLE_STREAM_ID, PERF_SAMPLE_CPU,
	PERF_SAMPLE_PERIOD,	PERF_SAMPLE_READ,
};
static constexpr uint64_t IDS = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID;
static constexpr uint64_t SHORT = IDS | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
				  PERF_SAMPLE_ADDR | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD |
				  PERF_SAMPLE_READ;
static constexpr uint64_t LONG =
	SHORT | PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER |
	PERF_SAMPLE_STACK_USER | PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC |
	PERF_SAMPLE_TRANSACTION | PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_PHYS_ADDR;

using Sample = std::vector<uint64_t>;

/* Where @field is in a sample, in words, or 0 if it is not there. Word 0 is the header. */
static size_t place_of(uint64_t field, uint64_t sample_type)
{
	size_t place = 1;

	if (!(sample_type & field))
		return 0;
	for (uint64_t each : one_word) {
		if (each == field)
			break;
		place += (sample_type & each) != 0;
	}
	return place;
}

/* The objects that make the hits of both events. */
static volatile uint64_t watched;
static char *page;
static std::optional<Hits> pmu;

static void drop_page()
{
	madvise(page, sysconf(_SC_PAGESIZE), MADV_DONTNEED);
}

struct Kind {
	const char *name;
	perf_event_attr (*attr)();
	void (*hit)(uint64_t i);
	bool in_turn = false; /* first the hits of one event, and then those of the other */
};

static const Kind kinds[] = {
	{ "execution", [] { return breakpoint(hit); }, hit },
	/* QEMU reports only one of two watchpoints on a word. */
	{ "write", [] { return breakpoint(Access::WRITE, &watched, sizeof(watched)); },
	  [](uint64_t i) { watched = i; }, true },
	{ "page fault",
	  [] {
		  perf_event_attr attr = software(PERF_COUNT_SW_PAGE_FAULTS, 1);

		  attr.exclude_kernel = 1;
		  return attr;
	  },
	  [](uint64_t i) {
		  *static_cast<volatile char *>(page) = i;
		  drop_page();
	  } },
	{ "page fault in the kernel",
	  [] {
		  perf_event_attr attr = software(PERF_COUNT_SW_PAGE_FAULTS, 1);

		  attr.exclude_user = 1;
		  return attr;
	  },
	  [](uint64_t) {
		  if (uname(reinterpret_cast<utsname *>(page)))
			  setup_failed("uname", errno);
		  drop_page();
	  } },
};

/* When the samples were taken, on CLOCK_MONOTONIC. */
struct Span {
	uint64_t begin, end;
};

/*
 * Whether the time of sample @i is that of its hit. If both events had the same hits, it is between
 * the times of the previous and of the next one.
 */
static bool time_fits(const std::vector<Sample> &with, const std::vector<Sample> &without, size_t i,
		      size_t word, const std::optional<Span> &span)
{
	const uint64_t time = with[i][word];

	if (span)
		return time >= (i ? with[i - 1][word] : span->begin) && time <= span->end;
	return (!i || time >= without[i - 1][word]) &&
	       (i + 1 == with.size() || time <= without[i + 1][word]);
}

static bool is_id(size_t word, uint64_t sample_type)
{
	return std::any_of(std::begin(one_word), std::end(one_word), [&](uint64_t field) {
		return field & IDS && word && place_of(field, sample_type) == word;
	});
}

/*
 * Describes the first difference that is not allowed. @span is set if the events had their hits in
 * turn.
 */
static std::optional<std::string> difference(const std::vector<Sample> &with,
					     const std::vector<Sample> &without, uint64_t id,
					     uint64_t sample_type, const std::optional<Span> &span)
{
	const size_t time = place_of(PERF_SAMPLE_TIME, sample_type);

	for (size_t i = 0; i < with.size(); i++) {
		const std::string in = "sample " + std::to_string(i) + ": ";

		if (with[i].size() != without[i].size())
			return in + std::to_string(with[i].size()) + " words, not " +
			       std::to_string(without[i].size());
		for (size_t word = 0; word < with[i].size(); word++) {
			const uint64_t got = with[i][word];
			const uint64_t wanted = is_id(word, sample_type) ? id : without[i][word];

			if (word == time && time) {
				if (!time_fits(with, without, i, word, span))
					return in + "the time is that of another hit";
			} else if (got != wanted) {
				return in + "word " + std::to_string(word) + " is " +
				       hex_text(got) + ", not " + hex_text(wanted);
			}
		}
	}
	return {};
}

/* The samples of HITS hits of two events. */
struct Compared {
	std::vector<Sample> with, without;
	uint64_t id; /* of the event with the program */
	std::optional<Span> span = {};
};

static perf_event_attr sampling(perf_event_attr attr, uint64_t sample_type)
{
	attr.sample_type = sample_type;
	attr.wakeup_events = 1;
	if (sample_type & PERF_SAMPLE_REGS_USER)
		attr.sample_regs_user = attr.sample_regs_intr = 0xff;
	if (sample_type & PERF_SAMPLE_STACK_USER)
		attr.sample_stack_user = 64;
	return attr;
}

/* Faults in the code that runs below, so that it adds no page faults there. */
static void rehearse(const Kind &kind, const perf_event_attr &attr)
{
	Event rehearsal(attr);

	rehearsal.enable();
	kind.hit(0);
	rehearsal.disable();
}

/*
 * HITS hits that look the same each time, to the registers and to the stack: they run on a
 * separate stack, and begin with cleared registers.
 */
class SameHits {
public:
	explicit SameHits(const Kind &kind) { kind_ = &kind; }
	void make()
	{
		ucontext_t context;

		memset(stack_, 0, sizeof(stack_));
		getcontext(&context);
		memset(&general_registers(context), 0, sizeof(general_registers(context)));
		context.uc_stack.ss_sp = stack_;
		context.uc_stack.ss_size = sizeof(stack_);
		context.uc_link = &back_;
		makecontext(&context, hit_all, 0);
		swapcontext(&back_, &context);
	}

private:
	static void hit_all()
	{
		for (uint64_t i = 0; i < HITS; i++)
			kind_->hit(i);
	}

	static inline const Kind *kind_;
	ucontext_t back_;
	alignas(16) char stack_[1 << 16];
};

/* Both events have the same hits. The kernel handles them in the order in which they are opened. */
static Compared hit_both(const Kind &kind, const perf_event_attr &attr, const Filter &filter,
			 bool first)
{
	Event one(attr), other(attr);
	Event &with = first ? one : other, &without = first ? other : one;
	Ring ring(with), reference(without);

	with.must_attach(filter);
	one.enable();
	other.enable();
	for (uint64_t i = 0; i < HITS; i++)
		kind.hit(i);
	other.disable();
	one.disable();
	return { ring.take_samples(), reference.take_samples(), with.id() };
}

/* The second event is opened when the first one has had its hits. */
static Compared hit_in_turn(const Kind &kind, const perf_event_attr &plain, const Filter &filter,
			    bool first)
{
	Compared compared = {};
	perf_event_attr attr = plain;
	SameHits hits(kind);

	attr.use_clockid = 1;
	attr.clockid = CLOCK_MONOTONIC;
	for (bool attached : { first, !first }) {
		Event event(attr);
		Ring ring(event);

		if (attached)
			event.must_attach(filter);
		event.enable();

		const uint64_t begin = nanoseconds_now();

		hits.make();
		event.disable();
		if (attached) {
			compared.span = { begin, nanoseconds_now() };
			compared.id = event.id();
		}
		(attached ? compared.with : compared.without) = ring.take_samples();
	}
	return compared;
}

/* The event with the program is opened first, or last. */
static void compare(const Kind &kind, uint64_t sample_type, const Filter &filter, bool first)
{
	const perf_event_attr attr = sampling(kind.attr(), sample_type);

	rehearse(kind, attr);

	const uint64_t runs = filter.runs();
	const auto [samples, wanted, id, span] =
		(kind.in_turn ? hit_in_turn : hit_both)(kind, attr, filter, first);
	const bool all = samples.size() == HITS && wanted.size() == HITS;
	const auto wrong = all ? difference(samples, wanted, id, sample_type, span) : std::nullopt;

	if (!all || wrong)
		note("%s, sample_type %#lx, opened %s: %s", kind.name, sample_type,
		     first ? "first" : "last", wrong ? wrong->c_str() : "samples are missing");
	EXPECT_EQ(filter.runs() - runs, HITS, "runs of the program");
	EXPECT_EQ(wanted.size(), HITS, "samples of the event without a program");
	EXPECT_EQ(samples.size(), HITS, "samples of the event with a program");
	EXPECT_FALSE(wrong, "a sample differs from that of an event without a program");
}

/* Error codes are negative; other programs leave 0. */
static void expect_stacks(const Filter &filter)
{
	EXPECT_GE(filter.snapshot().stack_id, 0, "as return value of bpf_get_stackid()");
	EXPECT_GE(filter.snapshot().stack_bytes, 0, "as return value of bpf_get_stack()");
}

static void compare(const Kind &kind, const Filter &filter)
{
	for (uint64_t sample_type : { SHORT, LONG, LONG & ~uint64_t(PERF_SAMPLE_CALLCHAIN),
				      uint64_t(PERF_SAMPLE_CALLCHAIN), uint64_t(PERF_SAMPLE_ADDR) })
		for (bool first : { true, false }) {
			compare(kind, sample_type, filter, first);
			expect_stacks(filter);
		}
}

/* The linker defines these for the section. */
extern "C" const char __start_burn[], __stop_burn[];

/* The positions in the rings, and what they were at first. Not on the stack, which is sampled. */
static struct {
	const uint64_t *at;
	uint64_t first;
} heads[2];

/* Stays in user mode, in a section that only it has, until both heads are @bytes farther. */
[[gnu::noinline, gnu::section("burn")]] static void burn(uint64_t bytes)
{
	for (auto &head : heads)
		head.first = __atomic_load_n(head.at, __ATOMIC_ACQUIRE);
	for (auto &head : heads)
		while (__atomic_load_n(head.at, __ATOMIC_ACQUIRE) < head.first + bytes)
			;
}

/* HITS samples, the first one at position @first or after it. */
static std::vector<Sample> samples_from(Ring &ring, uint64_t first)
{
	std::vector<Sample> samples;
	uint64_t position = 0;

	for (Sample &words : ring.take_records()) {
		if (position >= first && samples.size() < HITS &&
		    type_of_record(words[0]) == PERF_RECORD_SAMPLE)
			samples.push_back(words);
		position += words.size() * sizeof(uint64_t);
	}
	return samples;
}

/* Replaces IP by whether it is in burn(), and READ by whether it has grown. */
static void generalize(std::vector<Sample> &samples, uint64_t sample_type)
{
	uint64_t before = 0;

	for (Sample &words : samples) {
		uint64_t &ip = words[place_of(PERF_SAMPLE_IP, sample_type)];
		uint64_t &read = words[place_of(PERF_SAMPLE_READ, sample_type)];

		ip = ip >= reinterpret_cast<uintptr_t>(__start_burn) &&
		     ip < reinterpret_cast<uintptr_t>(__stop_burn);
		read = std::exchange(before, read) < read;
	}
}

/*
 * The two clocks overflow at different instructions of a loop, at different times. All other words
 * must be the same.
 */
static void compare_clocks(uint64_t sample_type, const Filter &filter, bool first)
{
	constexpr uint64_t MILLISECOND = 1'000'000, LONGEST_SAMPLE = 256;
	perf_event_attr attr =
		sampling(software(PERF_COUNT_SW_CPU_CLOCK, MILLISECOND), sample_type);
	const uint64_t runs = filter.runs();

	attr.exclude_kernel = 1;

	Event one(attr), other(attr);
	Event &with = first ? one : other, &without = first ? other : one;
	Ring ring(with), reference(without);

	with.must_attach(filter);
	heads[0].at = ring.head_address();
	heads[1].at = reference.head_address();
	one.enable();
	other.enable();
	burn(HITS * LONGEST_SAMPLE);
	other.disable();
	one.disable();

	auto samples = samples_from(ring, heads[0].first);
	auto wanted = samples_from(reference, heads[1].first);

	generalize(samples, sample_type);
	generalize(wanted, sample_type);

	const bool all = samples.size() == HITS && wanted.size() == HITS;
	const auto wrong =
		all ? difference(samples, wanted, with.id(), sample_type, Span{ 0, UINT64_MAX })
		    : std::nullopt;

	if (wrong)
		note("clock, sample_type %#lx, opened %s: %s", sample_type,
		     first ? "first" : "last", wrong->c_str());
	EXPECT_GE(filter.runs() - runs, HITS, "runs of the program of a clock");
	EXPECT_EQ(wanted.size(), HITS, "samples of the clock without a program");
	EXPECT_EQ(samples.size(), HITS, "samples of the clock with a program");
	for (const Sample &words : wanted) {
		EXPECT_TRUE(words[place_of(PERF_SAMPLE_IP, sample_type)], "IP is in the loop");
		EXPECT_TRUE(words[place_of(PERF_SAMPLE_READ, sample_type)], "the count grows");
	}
	EXPECT_FALSE(wrong, "a sample of a clock differs from that of one without a program");
}

/* Registers and callchains depend on the instruction. */
static void check_clocks(const Filter &filter)
{
	const EnoughSampling rate;

	for (uint64_t sample_type :
	     { SHORT, SHORT | (LONG & ~uint64_t(PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER |
						PERF_SAMPLE_REGS_INTR)) })
		for (bool first : { true, false }) {
			compare_clocks(sample_type, filter, first);
			expect_stacks(filter);
		}
}

static void check(Program program)
{
	Filter filter(program);

	run_on(usable_cpus().front()); /* PERF_SAMPLE_CPU */
	page = static_cast<char *>(mmap(nullptr, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (page == MAP_FAILED)
		setup_failed("mmap", errno);
	filter.returns(1);
	for (const Kind &kind : kinds)
		compare(kind, filter);
	check_clocks(filter);
}

static void check_nmi(Program program)
{
	Filter filter(program);

	pmu.emplace(NMI);
	filter.returns(1);
	compare({ "NMI", [] { return hardware(); }, [](uint64_t) { pmu->make(1); } }, filter);
}

static const struct {
	const char *name, *what;
	Program id;
} programs[] = {
	{ "plain", "calls no helper", Program::ON_OVERFLOW },
	{ "cookie", "reads its cookie", Program::READS_COOKIE },
	{ "stack", "calls bpf_get_stack()", Program::GETS_STACK },
	{ "stack_id", "calls bpf_get_stackid()", Program::GETS_STACK_ID },
	{ "frame", "gets one frame of its stack", Program::GETS_FRAME },
	{ "task_stack", "calls bpf_get_task_stack()", Program::GETS_TASK_STACK },
	{ "trace_printk", "calls bpf_trace_printk()", Program::PRINTS },
	{ "ringbuf", "writes to a BPF ring buffer", Program::FILLS_RINGBUF },
};

static const struct {
	const char *prefix, *what;
	void (*check)(Program program);
} sources[] = {
	{ "samples.", "hit", check },
	{ "samples.nmi.", "overflow in an NMI", check_nmi },
};

static const bool added = [] {
	for (auto &source : sources)
		for (auto &p : programs)
			add_test({ std::string(source.prefix) + p.name, "C2",
				   std::string("if the program ") + p.what +
					   ", the sample of an accepted " + source.what +
					   " equals that of an event without a program",
				   [&source, &p] { source.check(p.id); } });
	return true;
}();
