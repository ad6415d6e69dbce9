// SPDX-License-Identifier: GPL-2.0
/*
 * C2: the sample of an accepted hit equals that of an event without a program, word by word. Both
 * events have the same attributes and the same hits; only their ids and times may differ.
 */
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <optional>

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

/* The memory whose accesses are the hits of both events. */
static volatile uint64_t watched;
static char *page;

struct Kind {
	const char *name;
	perf_event_attr (*attr)();
	void (*hit)(uint64_t i);
	bool watches = false;
};

static const Kind kinds[] = {
	{ "execution", [] { return breakpoint(hit); }, hit },
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
		  madvise(page, sysconf(_SC_PAGESIZE), MADV_DONTNEED);
	  } },
};

/* QEMU reports only one of two watchpoints on a word. */
static bool hits_both(const Kind &kind)
{
	Event one(kind.attr()), other(kind.attr());

	one.enable();
	other.enable();
	kind.hit(0);
	return one.count() && other.count();
}

/* Describes the first difference that is not allowed. */
static std::optional<std::string> difference(const std::vector<Sample> &with,
					     const std::vector<Sample> &without, uint64_t id,
					     uint64_t sample_type)
{
	const size_t time = place_of(PERF_SAMPLE_TIME, sample_type);

	for (size_t i = 0; i < with.size(); i++) {
		const std::string in = "sample " + std::to_string(i) + ": ";

		if (with[i].size() != without[i].size())
			return in + std::to_string(with[i].size()) + " words, not " +
			       std::to_string(without[i].size());
		for (size_t word = 0; word < with[i].size(); word++) {
			const bool is_id = std::any_of(
				std::begin(one_word), std::end(one_word), [&](uint64_t field) {
					return field & IDS && word &&
					       place_of(field, sample_type) == word;
				});
			const uint64_t got = with[i][word];

			/* The time must be between the times of the previous and the next hit. */
			if (word == time && time) {
				if ((i && got < without[i - 1][word]) ||
				    (i + 1 < with.size() && got > without[i + 1][word]))
					return in + "the time is that of another hit";
			} else if (got != (is_id ? id : without[i][word])) {
				return in + "word " + std::to_string(word) + " is " +
				       hex_text(got) + ", not " +
				       hex_text(is_id ? id : without[i][word]);
			}
		}
	}
	return {};
}

/* The event with the program is opened first, or last: the kernel handles them in that order. */
static void compare(const Kind &kind, uint64_t sample_type, const Filter &filter, bool first)
{
	perf_event_attr attr = kind.attr();

	attr.sample_type = sample_type;
	attr.wakeup_events = 1;
	if (sample_type & PERF_SAMPLE_REGS_USER)
		attr.sample_regs_user = attr.sample_regs_intr = 0xff;
	if (sample_type & PERF_SAMPLE_STACK_USER)
		attr.sample_stack_user = 64;

	{
		/* Fault in the code that runs below, so that it adds no page faults there. */
		Event rehearsal(attr);

		rehearsal.enable();
		kind.hit(0);
		rehearsal.disable();
	}

	Event one(attr), other(attr);
	Event &with = first ? one : other, &without = first ? other : one;
	Ring ring(with), reference(without);
	const uint64_t runs = filter.runs();

	with.must_attach(filter);
	one.enable();
	other.enable();
	for (uint64_t i = 0; i < HITS; i++)
		kind.hit(i);
	other.disable();
	one.disable();

	const auto samples = ring.take_samples(), wanted = reference.take_samples();

	const bool all = samples.size() == HITS && wanted.size() == HITS;
	const auto wrong = all ? difference(samples, wanted, with.id(), sample_type) : std::nullopt;

	if (!all || wrong)
		note("%s, sample_type %#lx, opened %s: %s", kind.name, sample_type,
		     first ? "first" : "last", wrong ? wrong->c_str() : "samples are missing");
	EXPECT_EQ(filter.runs() - runs, HITS, "runs of the program");
	EXPECT_EQ(wanted.size(), HITS, "samples of the event without a program");
	EXPECT_EQ(samples.size(), HITS, "samples of the event with a program");
	EXPECT_FALSE(wrong, "a sample differs from that of an event without a program");
}

static void check(Program program)
{
	Filter filter(program);

	page = static_cast<char *>(mmap(nullptr, sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	if (page == MAP_FAILED)
		setup_failed("mmap", errno);
	filter.returns(1);
	for (const Kind &kind : kinds) {
		if (kind.watches && !hits_both(kind)) {
			note("this machine reports only one of two events on a %s", kind.name);
			continue;
		}
		for (uint64_t sample_type :
		     { SHORT, LONG, LONG & ~uint64_t(PERF_SAMPLE_CALLCHAIN),
		       uint64_t(PERF_SAMPLE_CALLCHAIN), uint64_t(PERF_SAMPLE_ADDR) })
			for (bool first : { true, false }) {
				compare(kind, sample_type, filter, first);
				/* Error codes are negative; the other programs leave 0. */
				EXPECT_GE(filter.snapshot().stack_id, 0,
					  "as return value of bpf_get_stackid()");
				EXPECT_GE(filter.snapshot().stack_bytes, 0,
					  "as return value of bpf_get_stack()");
			}
	}
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

static const bool added = [] {
	for (auto &p : programs)
		add_test({ std::string("samples.") + p.name, "C2",
			   std::string("if the program ") + p.what +
				   ", the sample of an accepted hit equals that of an event "
				   "without a program",
			   [&p] { check(p.id); } });
	return true;
}();
