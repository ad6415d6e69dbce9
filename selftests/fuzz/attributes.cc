// SPDX-License-Identifier: GPL-2.0
/* Random attributes: valid ones of each kind, sometimes with one or two spoilt fields. */
#include "fuzz/fuzz.h"

#include <cstring>
#include <ctime>

#include "lib/hit.h"

/* No shorter period: a cpu-clock that expires during its own interrupt would block the CPU. */
uint64_t clock_period(Random &random)
{
	return random.of<uint64_t>({ 200'000, 1'000'000, 10'000'000, 1ull << 62 });
}

perf_event_attr of_breakpoint(Random &random)
{
	if (random.one_in(2))
		return breakpoint(random.one_in(3) ? hit_other : hit);

	size_t len = random.of<size_t>({ 1, 2, 4, 8, 8, 8 });

	return breakpoint(random.one_in(2) ? Access::WRITE : Access::READ_WRITE,
			  &watched[random.below(std::size(watched))], len);
}

static perf_event_attr of_other(Random &random)
{
	perf_event_attr attr = breakpoint(hit);

	attr.type = PERF_TYPE_SOFTWARE;
	attr.bp_type = attr.bp_addr = attr.bp_len = 0;
	switch (random.below(pmu ? 12 : 8)) {
	case 8 ... 11:
		attr.type = pmu;
		/* All valid values and an invalid one. */
		attr.config = random.below(17);
		attr.exclude_kernel = 0;
		break;
	case 0:
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
		attr.sample_period = clock_period(random);
		break;
	case 1:
		attr.config = PERF_COUNT_SW_TASK_CLOCK;
		attr.sample_period = clock_period(random);
		break;
	case 2:
	case 3:
		if (tracepoint_id) {
			attr.type = PERF_TYPE_TRACEPOINT;
			attr.config = tracepoint_id;
			attr.sample_type |= PERF_SAMPLE_RAW;
			attr.exclude_kernel = 0;
		}
		break;
	default:
		attr.config = random.of({ PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_CONTEXT_SWITCHES,
					  PERF_COUNT_SW_CPU_MIGRATIONS, PERF_COUNT_SW_DUMMY });
	}
	return attr;
}

static bool is_clock(const perf_event_attr &attr)
{
	return attr.type == PERF_TYPE_SOFTWARE && attr.config <= PERF_COUNT_SW_TASK_CLOCK;
}

static void vary(perf_event_attr &attr, Random &random)
{
	attr.disabled = random.one_in(3);
	attr.inherit = random.one_in(3);
	attr.inherit_thread = attr.inherit && random.one_in(4);
	attr.pinned = random.one_in(12);
	attr.exclusive = random.one_in(16);
	attr.exclude_kernel = random.below(4) > 0;
	attr.exclude_user = random.one_in(20);
	attr = with_sigtrap(attr, has_sigtrap() && random.one_in(4));
	attr.sig_data = attr.sigtrap ? random.next() : 0;
	attr.enable_on_exec = !attr.remove_on_exec && random.one_in(10);
	attr.write_backward = random.one_in(8);
	attr.mmap = attr.mmap2 = attr.comm = attr.task = random.one_in(8);
	attr.context_switch = random.one_in(12);
	attr.sample_id_all = random.one_in(4);
	if (random.one_in(10)) {
		attr.use_clockid = 1;
		attr.clockid = random.of({ CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME });
	}
	if (random.one_in(3))
		attr.read_format = random.below(attr.inherit ? 8 : 16);
	if (random.one_in(3))
		attr.sample_type |= random.next() &
				    (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN |
				     PERF_SAMPLE_ID | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD |
				     PERF_SAMPLE_STREAM_ID | PERF_SAMPLE_RAW | PERF_SAMPLE_WEIGHT |
				     PERF_SAMPLE_DATA_SRC | PERF_SAMPLE_IDENTIFIER |
				     PERF_SAMPLE_PHYS_ADDR | PERF_SAMPLE_DATA_PAGE_SIZE);
	if (random.one_in(10)) {
		attr.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
		attr.sample_regs_user = 0xff;
		attr.sample_stack_user = 256;
	}
	if (is_clock(attr))
		return;
	attr.sample_period = random.of<uint64_t>({ 1, 1, 1, 1, 2, 7, 1000 });
	if (random.one_in(16)) {
		attr.freq = 1;
		attr.sample_freq = 1000;
	}
	if (random.one_in(8)) {
		attr.watermark = 1;
		attr.wakeup_watermark = random.of({ 0, 64, 4096 });
	}
}

static uint64_t odd_address(Random &random)
{
	uint64_t here = reinterpret_cast<uintptr_t>(&watched);

	switch (random.below(4)) {
	case 0:
		if (!kernel_text.empty())
			return random.of(kernel_text);
		[[fallthrough]];
	case 1:
		if (!kernel_data.empty())
			return random.of(kernel_data);
		[[fallthrough]];
	default:
		return random.of<uint64_t>({ 0, 1, here + 1, 0x7fff'ffff'f000, 0x7fff'ffff'efff,
					     0x8000'0000'0000'0000, 0xffff'7fff'ffff'ffff,
					     UINT64_MAX, UINT64_MAX - 7, random.next() });
	}
}

static constexpr void (*spoils[])(perf_event_attr &, Worker &) = {
	[](auto &attr, Worker &w) { attr.bp_type = w.random.below(9); },
	[](auto &attr, Worker &w) { attr.bp_len = w.random.one_in(2) ? 8 : w.odd_number(); },
	[](auto &attr, Worker &w) { attr.bp_addr = odd_address(w.random); },
	[](auto &attr, Worker &w) {
		attr.bp_addr = odd_address(w.random);
		attr.bp_len = EXECUTE_LENGTH;
		attr.bp_type = w.random.one_in(2) ? HW_BREAKPOINT_X : HW_BREAKPOINT_W;
		attr.exclude_kernel = 0;
	},
	[](auto &attr, Worker &w) { attr.sample_type = w.random.below(1 << 25); },
	[](auto &attr, Worker &w) { attr.sample_type |= 1ull << w.random.below(64); },
	[](auto &attr, Worker &w) { attr.sample_period = w.odd_number(); },
	[](auto &attr, Worker &w) { attr.freq = 1, attr.sample_freq = w.random.below(2000); },
	[](auto &attr, Worker &w) {
		uint64_t flags;

		memcpy(&flags, &attr.read_format + 1, sizeof(flags));
		flags ^= 1ull << w.random.below(w.random.one_in(4) ? 64 : 42);
		memcpy(&attr.read_format + 1, &flags, sizeof(flags));
	},
	[](auto &attr, Worker &) { attr.sigtrap = 1; },
	[](auto &attr, Worker &) { attr.remove_on_exec = attr.enable_on_exec = 1; },
	[](auto &attr, Worker &w) { attr.precise_ip = w.random.below(4); },
	[](auto &attr, Worker &w) {
		attr.sample_type |= PERF_SAMPLE_BRANCH_STACK;
		attr.branch_sample_type = w.random.below(1 << 20);
	},
	[](auto &attr, Worker &w) { attr.read_format = w.odd_number(); },
	[](auto &attr, Worker &w) { attr.use_clockid = 1, attr.clockid = w.random.below(20); },
	[](auto &attr, Worker &w) { attr.aux_watermark = w.odd_number(); },
	[](auto &attr, Worker &w) { attr.aux_output = 1, attr.aux_sample_size = w.odd_number(); },
	[](auto &attr, Worker &w) { attr.wakeup_events = w.odd_number(); },
	[](auto &attr, Worker &w) {
		attr.sample_type |= PERF_SAMPLE_STACK_USER;
		attr.sample_stack_user = w.odd_number();
	},
	[](auto &attr, Worker &w) {
		attr.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_REGS_INTR;
		attr.sample_regs_user = w.odd_number();
		attr.sample_regs_intr = w.odd_number();
	},
	[](auto &attr, Worker &w) { attr.sample_max_stack = w.odd_number(); },
	[](auto &attr, Worker &w) {
		attr.size = w.random.of({ 0, 1, 64, 72, 104, 127, 4096, -1 });
	},
	[](auto &attr, Worker &w) { attr.type = w.random.below(12); },
	[](auto &attr, Worker &w) { attr.config = w.odd_number(); },
	[](auto &attr, Worker &) { attr.inherit = 1, attr.read_format |= PERF_FORMAT_GROUP; },
};

void spoil(perf_event_attr &attr, Worker &w)
{
	w.random.of(spoils)(attr, w);
}

perf_event_attr attributes(Worker &w, bool of_breakpoints)
{
	perf_event_attr attr = of_breakpoints ? of_breakpoint(w.random) : of_other(w.random);

	vary(attr, w.random);
	/* With one spoilt field the attributes can still be valid, with two they rarely are. */
	if (w.random.one_in(4))
		spoil(attr, w);
	if (w.random.one_in(24))
		spoil(attr, w);
	if (is_clock(attr) && !attr.freq)
		attr.sample_period = clock_period(w.random);
	return attr;
}
