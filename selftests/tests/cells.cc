// SPDX-License-Identifier: GPL-2.0
/*
 * C1, C2 and C3 as a matrix: each kind of event with each side effect, each kind of event in each
 * place, and each side effect across each change of the event. A test measures three times: without
 * a program, with one that accepts and with one that rejects. Accepted hits must have the same side
 * effects as hits without a program; rejected hits must have none.
 */
#include "tests/cells.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>

#include "lib/cgroup.h"
#include "lib/clock.h"
#include "lib/compat.h"
#include "lib/gate.h"
#include "lib/pmu.h"
#include "tests/common.h"

namespace {

/* The objects that make the hits. A child of the test inherits them. */
struct {
	volatile uint64_t *word; /* on a separate page, at an address that only this test writes */
	char *page; /* for page faults */
	std::optional<Pipe> pipe;
	std::optional<Hits> pmu;
	void (*target)(uint64_t value) = hit;
} with;

struct Kind {
	const char *name, *title;
	perf_event_attr (*attr)();
	void (*hit)();
	bool exact = true; /* one overflow per hit; otherwise there may be more or fewer */
	std::optional<Context> context = {}; /* of a PMU event */
	std::optional<Access> access = {}; /* of a breakpoint in user mode */
};

perf_event_attr sampling(perf_event_attr attr, bool exclude_kernel)
{
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.exclude_kernel = exclude_kernel;
	return attr;
}

void read_into_word()
{
	char byte = 'x';

	if (write(with.pipe->in.get(), &byte, 1) != 1 ||
	    read(with.pipe->out.get(), const_cast<uint64_t *>(with.word), 1) != 1)
		setup_failed("write to and read from a pipe", errno);
}

void fault()
{
	*static_cast<volatile char *>(with.page) = 1;
	madvise(with.page, sysconf(_SC_PAGESIZE), MADV_DONTNEED);
}

void raise_pmu()
{
	with.pmu->make(1);
}

constexpr uint64_t TICK = 1'000'000; /* ns */

/* Longer than a tick: on a busy host ticks come late, and two late ticks make one overflow. */
void tick()
{
	spin(3);
}

const Kind kinds[] = {
	{ "execute", "breakpoint on execution", [] { return breakpoint(hit); },
	  [] { with.target(0); }, true, std::nullopt, Access::EXECUTE },
	{ "write", "watchpoint",
	  [] { return breakpoint(Access::WRITE, with.word, sizeof(*with.word)); },
	  [] { *with.word = 1; }, true, std::nullopt, Access::WRITE },
	{ "kernel_write", "watchpoint that the kernel hits",
	  [] {
		  need_kernel_hits();
		  return sampling(breakpoint(Access::WRITE, with.word, 1), false);
	  },
	  read_into_word },
	{ "kernel_text", "breakpoint on a kernel function",
	  [] {
		  if (!TASK_BREAKPOINTS_IN_KERNEL)
			  unavailable("the kernel has no breakpoints of a task in its own text");
		  return breakpoint_in_kernel(SYSCALL_SYMBOL("getpriority"));
	  },
	  [] { syscall(SYS_getpriority, PRIO_PROCESS, 0); } },
	{ "cpu_clock", "CPU clock",
	  [] { return sampling(software(PERF_COUNT_SW_CPU_CLOCK, TICK), false); }, tick, false },
	{ "task_clock", "task clock",
	  [] { return sampling(software(PERF_COUNT_SW_TASK_CLOCK, TICK), true); }, tick, false },
	{ "page_fault", "page fault",
	  [] { return sampling(software(PERF_COUNT_SW_PAGE_FAULTS, 1), true); }, fault, false },
	{ "switch", "context switch",
	  [] { return sampling(software(PERF_COUNT_SW_CONTEXT_SWITCHES, 1), false); },
	  force_reschedule, false },
	{ "nmi", "PMU overflow in an NMI", [] { return hardware(); }, raise_pmu, true, NMI },
	{ "irq", "PMU overflow in a hard interrupt", [] { return hardware(); }, raise_pmu, true,
	  IRQ },
	{ "task", "PMU overflow in task context", [] { return hardware(); }, raise_pmu, true,
	  TASK },
};

void prepare(const Kind &kind)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	auto *pages = static_cast<char *>(
		mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

	if (pages == MAP_FAILED)
		setup_failed("mmap", errno);
	with.word = reinterpret_cast<uint64_t *>(pages);
	with.page = pages + page;
	with.pipe.emplace();
	if (kind.context)
		with.pmu.emplace(*kind.context);
}

/* Exact kinds must have equal numbers, the others at least one effect. */
void compare(bool exact, const Effect &effect, const Observed &bare, const Observed &accepted)
{
	if (exact) {
		EXPECT_VALUE(accepted.*effect.seen, bare.*effect.seen, effect.title);
		EXPECT_EQ(accepted.count, bare.count,
			  "accepted hits counted, as many as without a program");
		return;
	}
	if (effect.seen == &Observed::limit_used) {
		EXPECT_TRUE(bare.stopped && accepted.stopped, "the limit has stopped the event");
		EXPECT_EQ(accepted.runs, LIMIT, "runs of the program until the limit");
		return;
	}
	EXPECT_GT(bare.*effect.seen, 0, "effects without a program");
	EXPECT_GT(accepted.*effect.seen, 0, "effects of accepted hits");
	EXPECT_LE(accepted.*effect.seen, accepted.runs, "effects of accepted hits");
}

/*
 * Returns what @measure returns. On a busy host a clock may tick too rarely to have an effect, so
 * measure again then.
 */
template <typename Measure, typename HasEffect>
auto measured(bool exact, Measure measure, HasEffect has_effect)
{
	constexpr int TRIES = 20;

	for (int i = 1;; i++) {
		const auto seen = measure();

		if (exact || i == TRIES || has_effect(seen))
			return seen;
	}
}

void check_effect(const Kind &kind, const Effect &effect)
{
	prepare(kind);

	Filter filter;
	const Subject subject = { .attr = kind.attr(), .hit = kind.hit, .filter = &filter };
	const auto measure = [&](Verdict verdict) {
		return measured(
			kind.exact, [&] { return observe(effect.setup, verdict, subject); },
			[&](const Observed &seen) {
				if (verdict.attached && !verdict.returns)
					return seen.runs > LIMIT;
				return effect.seen == &Observed::limit_used ? seen.stopped
									    : seen.*effect.seen > 0;
			});
	};
	const Observed bare = measure(no_program), accepted = measure({ true, 1 }),
		       rejected = measure(rejects);

	compare(kind.exact, effect, bare, accepted);
	if (kind.exact) {
		EXPECT_EQ(bare.count, effect.accepted_count, "hits counted without a program");
		EXPECT_VALUE(bare.*effect.seen, effect.accepted_seen, "effects without a program");
		EXPECT_EQ(rejected.count, HITS, "rejected hits counted");
		EXPECT_EQ(rejected.runs, HITS, "runs of the program for rejected hits");
		EXPECT_VALUE(rejected.*effect.seen, 0, effect.title);
	} else {
		EXPECT_GT(rejected.runs, 0, "runs of the program for rejected hits");
		if (effect.seen == &Observed::limit_used)
			EXPECT_GT(rejected.runs, LIMIT, "runs of the program for rejected hits");
		else
			EXPECT_VALUE(rejected.*effect.seen, 0, effect.title);
	}
}

struct Placement {
	const char *name, *title;
	/* Only the properties that the placement has are set. */
	bool leader = false, sibling = false, inherited = false, on_cpu = false, cgroup = false,
	     compat = false;
};

const Placement placements[] = {
	{ .name = "leader", .title = "that leads a group", .leader = true },
	{ .name = "sibling", .title = "that is a sibling in its group", .sibling = true },
	{ .name = "inherited", .title = "that a child has inherited", .inherited = true },
	{ .name = "inherited_group",
	  .title = "that a child has inherited with its group",
	  .sibling = true,
	  .inherited = true },
	{ .name = "inherited_ring",
	  .title = "that a child has inherited, with a ring per CPU",
	  .inherited = true,
	  .on_cpu = true },
	{ .name = "cpu", .title = "opened for all tasks on a CPU", .on_cpu = true },
	{ .name = "cgroup", .title = "opened for a cgroup", .on_cpu = true, .cgroup = true },
	{ .name = "compat", .title = "of a task that executes 32-bit code", .compat = true },
};

struct Seen {
	uint64_t count, runs, samples, signals;
	bool has_ring;
};

Seen use(const Kind &kind, const Placement &where, Filter &filter, Verdict verdict)
{
	const int cpu = usable_cpus().front();
	const auto make_hits = [&] {
		for (uint64_t i = 0; i < HITS; i++)
			kind.hit();
		return 0;
	};
	perf_event_attr attr = kind.attr(), other_attr = software(PERF_COUNT_SW_DUMMY);
	/*
	 * Declared before the events, so that it is destroyed after them: closing a leader enables
	 * its siblings, which may send signals until they are closed, too.
	 */
	Signals signals({ SETSIG });
	std::optional<Cgroup> cgroup;
	std::optional<Event> event, other;
	std::optional<Ring> ring;
	const uint64_t runs = filter.runs();

	run_on(cpu);
	attr.inherit = other_attr.inherit = where.inherited;
	attr.disabled = !where.sibling;
	other_attr.disabled = where.sibling;
	if (where.sibling)
		other.emplace(other_attr);
	if (where.cgroup)
		event.emplace(cgroup.emplace().open(attr, cpu));
	else
		event.emplace(attr, where.on_cpu && !where.inherited ? -1 : 0,
			      where.on_cpu ? cpu : -1, other ? &*other : nullptr);
	if (where.leader)
		other.emplace(other_attr, 0, -1, &*event);
	/* The kernel has no rings for inherited events of a task. */
	if (!where.inherited || where.on_cpu)
		ring.emplace(*event);
	event->async(SETSIG, gettid());
	filter.returns(verdict.returns);
	if (verdict.attached)
		event->must_attach(filter);

	Event &leader = where.sibling ? *other : *event;

	leader.enable();
	if (where.cgroup || where.inherited) {
		Gate gate;
		Child child([&] {
			gate.pass();
			return make_hits();
		});

		if (cgroup)
			cgroup->add(child.pid());

		/*
		 * Handle the signals after the child has exited. Each would wake up this task,
		 * whose context switches may be hits, too, and send the next signal.
		 */
		const BlockedSignals blocked;

		gate.open();
		EXPECT_STATUS(child.wait(), 0, "the child");
	} else {
		make_hits();
	}
	leader.disable();
	if (ring)
		ring->drain();
	return { event->count(), filter.runs() - runs, ring ? ring->samples() : 0,
		 Signals::count(SETSIG), ring.has_value() };
}

/* As use(), but a 32-bit program makes the hits and exits with the number of its signals. */
Seen use_compat(const Kind &kind, const InstructionSet &set, Filter &filter, Verdict verdict)
{
	const uint64_t runs = filter.runs();
	perf_event_attr attr =
		kind.access == Access::EXECUTE
			? breakpoint(Access::EXECUTE, reinterpret_cast<void *>(set.at),
				     set.execute_length)
			: breakpoint(Access::WRITE, reinterpret_cast<void *>(set.word), 4);
	Gate gate;
	Child child([&] {
		gate.pass();
		return exec_compat(set);
	});

	attr.enable_on_exec = 1;

	Event event(attr, child.pid());
	Ring ring(event);

	event.async(COMPAT_SIGNAL, child.pid());
	filter.returns(verdict.returns);
	if (verdict.attached)
		event.must_attach(filter);
	gate.open();

	const int status = child.wait();

	if (!WIFEXITED(status))
		fail("expected the 32-bit program to exit, got status %#x", status);
	ring.drain();
	return { event.count(), filter.runs() - runs, ring.samples(), uint64_t(WEXITSTATUS(status)),
		 true };
}

void check_seen(const Kind &kind, const Placement &where, const Seen &bare, const Seen &accepted,
		const Seen &rejected)
{
	EXPECT_EQ(rejected.samples, 0, "samples of rejected hits");
	EXPECT_EQ(rejected.signals, 0, "signals for rejected hits");
	EXPECT_GT(bare.signals, 0, "signals without a program");
	EXPECT_GT(accepted.signals, 0, "signals for accepted hits");
	if (accepted.has_ring)
		EXPECT_EQ(accepted.samples, accepted.runs, "samples of accepted hits");
	if (kind.exact) {
		for (const Seen &seen : { bare, accepted, rejected })
			EXPECT_EQ(seen.count, HITS, "hits counted");
		for (const Seen &seen : { accepted, rejected })
			EXPECT_EQ(seen.runs, HITS, "runs of the program");
		if (bare.has_ring)
			EXPECT_EQ(bare.samples, HITS, "samples without a program");
		/* An inherited event and the event that owns its ring may each send a signal. */
		for (const Seen &seen : { bare, accepted }) {
			EXPECT_GE(seen.signals, HITS, "signals");
			EXPECT_LE(seen.signals, (1 + where.inherited) * HITS, "signals");
		}
	} else {
		EXPECT_GT(rejected.runs, 0, "runs of the program for rejected hits");
		EXPECT_LE(accepted.signals, (1 + where.inherited) * accepted.runs,
			  "signals for accepted hits");
	}
}

void check_place(const Kind &kind, const Placement &where)
{
	prepare(kind);

	Filter filter;
	const auto check = [&](auto measure) {
		const Seen bare = measure(no_program), accepted = measure(Verdict{ true, 1 }),
			   rejected = measure(rejects);

		check_seen(kind, where, bare, accepted, rejected);
	};

	if (!where.compat)
		return check([&](Verdict verdict) {
			return measured(
				kind.exact, [&] { return use(kind, where, filter, verdict); },
				[&](const Seen &seen) {
					return verdict.attached && !verdict.returns
						       ? seen.runs > 0
						       : seen.signals > 0;
				});
		});

	bool any = false;

	for (const InstructionSet &set : instruction_sets()) {
		if (!executes(set))
			continue;
		any = true;
		check([&](Verdict verdict) { return use_compat(kind, set, filter, verdict); });
	}
	if (!any)
		unavailable("this kernel executes no 32-bit programs");
}

perf_event_attr breakpoint_on(void (*function)(uint64_t value), bool sigtrap)
{
	perf_event_attr attr = with_sigtrap(breakpoint(function), sigtrap);

	attr.disabled = 0;
	return attr;
}

/* The kernel may not be able to take the first CPU offline. */
int hotplug_cpu()
{
	return usable_cpus().back();
}

/* Takes a CPU offline, and brings it back. */
class Offline {
public:
	explicit Offline(int cpu)
		: path_("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/online")
	{
		if (!set(false))
			unavailable("the CPU cannot be taken offline");
	}
	~Offline()
	{
		/* CPU hotplug may be busy for a moment. */
		for (int tries = 0; !set(true) && tries < 100; tries++)
			usleep(10'000);
	}
	Offline(const Offline &) = delete;

private:
	bool set(bool online) const { return bool(std::ofstream(path_) << online << std::flush); }

	const BlockedSignals blocked_; /* a signal would interrupt the write */
	const std::string path_;
};

struct Moment {
	const char *name, *title;
	void (*act)(Event &event, Fd &link, bool sigtrap);
	bool detaches = false; /* the second half of the hits has no program */
	bool on_cpu = false;
	/* The hits of the second half that are counted, and whether they have a limit. */
	uint64_t counted = HITS / 2;
	bool limits = false;
	/* As @counted, if a limit has stopped the event before. */
	uint64_t revived = 0;
	bool reattaches = false; /* the second half of the hits has a program that rejects */
};

const Moment moments[] = {
	{ "modify", "MODIFY_ATTRIBUTES",
	  [](Event &event, Fd &, bool sigtrap) {
		  with.target = hit_other;
		  event.modify(breakpoint_on(hit_other, sigtrap));
	  },
	  false, false, HITS / 2, false, HITS / 2 },
	{ "disable", "DISABLE and ENABLE",
	  [](Event &event, Fd &, bool) {
		  event.disable();
		  hit_times(HITS);
		  event.enable();
	  },
	  false, false, HITS / 2, false, HITS / 2 },
	{ "refresh", "REFRESH", [](Event &event, Fd &, bool) { event.must_refresh(LIMIT); }, false,
	  false, LIMIT, true, LIMIT },
	{ "fork", "a child's fork and exit", [](Event &, Fd &, bool) { in_child([] {}); } },
	{ "detach", "closing the link", [](Event &, Fd &link, bool) { link.close(); }, true },
	{ "reattach", "replacing the program by one that rejects",
	  [](Event &event, Fd &link, bool) {
		  static Filter again;

		  if (!link.valid())
			  return;
		  link.close();
		  event.must_attach(again);
	  },
	  false, false, HITS / 2, false, 0, true },
	{ "hotplug", "the CPU goes offline, which removes the event",
	  [](Event &, Fd &, bool) {
		  run_on(usable_cpus().front());
		  {
			  const Offline offline(hotplug_cpu());
		  }
		  run_on(hotplug_cpu());
	  },
	  /* perf_event_exit_cpu() removes the event for good. */
	  false, true, 0 },
	{ "exec", "exec()", nullptr },
	{ "exit", "the exit of the task", nullptr },
};

/* If hits without a program and accepted hits were wrong in the same way, compare() would pass. */
void check_without_program(const Effect &effect, const Moment &moment, const Observed &bare)
{
	const bool limited = effect.setup.limit;
	const uint64_t count = limited ? LIMIT + moment.revived : HITS / 2 + moment.counted;
	uint64_t seen = count;

	if (effect.seen == &Observed::hups)
		seen = 1 + moment.limits;
	else if (limited)
		seen = moment.revived && !moment.limits ? 0 : LIMIT;
	EXPECT_EQ(bare.count, count, "hits counted without a program");
	EXPECT_VALUE(bare.*effect.seen, seen, "effects without a program");
}

void check_moment(const Effect &effect, const Moment &moment)
{
	const Setup &setup = effect.setup;
	Filter filter;
	Subject subject = { .hit = kinds[0].hit, .filter = &filter };
	const auto measure = [&](Verdict verdict) {
		with.target = hit;
		return observe(setup, verdict, subject);
	};

	prepare(kinds[0]);
	subject.halfway = [&](Event &event, Fd &link) { moment.act(event, link, setup.sigtrap); };
	if ((moment.detaches || moment.reattaches) && !filter.can_link())
		unavailable("a program that is attached by ioctl cannot be detached (before 5.15)");
	if (moment.on_cpu) {
		if (usable_cpus().size() < 2)
			unavailable("the test needs two CPUs");
		if (!pmu_type())
			unavailable("a CPU is taken offline only where the test PMU is loaded");
		subject.pid = -1;
		subject.cpu = hotplug_cpu();
		run_on(subject.cpu);
	}

	const Observed bare = measure(no_program), accepted = measure({ true, 1 }),
		       rejected = measure(rejects);

	check_without_program(effect, moment, bare);
	if (moment.reattaches)
		EXPECT_VALUE(accepted.*effect.seen, std::min(effect.accepted_seen, HITS / 2),
			     "effects before the second attachment");
	else
		compare(true, effect, bare, accepted);
	/* Rejected hits take nothing from a limit, nor from a new one that REFRESH sets. */
	uint64_t count = HITS / 2 + (moment.limits ? HITS / 2 : moment.counted);

	if (moment.detaches && setup.limit)
		count = HITS / 2 + LIMIT;
	EXPECT_EQ(rejected.count, count, "rejected hits counted");
	if (!moment.detaches)
		EXPECT_VALUE(rejected.*effect.seen, 0, effect.title);
	else
		EXPECT_VALUE(rejected.*effect.seen, std::min(effect.accepted_seen, HITS / 2),
			     "effects after the link was closed");
}

std::vector<Cell> &all()
{
	static std::vector<Cell> all;

	return all;
}

/* Why "compat" has no test for an event that no instruction of the 32-bit program hits. */
const char OF_KERNEL[] =
	"the kernel calls perf_swevent_overflow() or the PMU's handler for it without looking at "
	"the mode of the task; the cells of breakpoints compare samples of both modes";

/* Cells without their own test: @test covers the cell, or @why gives the reason. */
const struct {
	const char *table, *row, *column, *test, *why;
} reasons[] = {
	{ "moment", "sigtrap", "hotplug", "",
	  "perf_event_alloc() refuses attr.sigtrap for an event without a task" },
	{ "moment", "limit", "hotplug", "cells.moment.hup.hotplug", "" },
	{ "moment", "sigtrap", "exec", "",
	  "perf_copy_attr() requires attr.remove_on_exec with attr.sigtrap" },
	{ "moment", "", "exec", "life.after_exec.rejected", "" },
	{ "moment", "", "exit", "", "a task has no hits after perf_event_exit_task()" },
};

void add_cell(const std::string &table, const std::string &row, const std::string &column,
	      const std::string &says, std::function<void()> run)
{
	const auto reason = std::find_if(std::begin(reasons), std::end(reasons), [&](auto &r) {
		return table == r.table && (row == r.row || !*r.row) && column == r.column;
	});
	std::string name = "cells." + table + "." + row + "." + column;

	if (reason != std::end(reasons)) {
		all().push_back({ table, row, column, reason->test, reason->why });
		return;
	}
	all().push_back({ table, row, column, name, "" });
	add_test({ std::move(name), "C1", says, std::move(run) });
}

const bool added = [] {
	for (const Kind &kind : kinds) {
		for (const Effect &effect : effects)
			add_cell("effect", kind.name, effect.id,
				 std::string(kind.title) + ": " + effect.title +
					 " as without a program if accepted, none if rejected",
				 [&] { check_effect(kind, effect); });
		for (const Placement &where : placements) {
			if (where.compat && !kind.access) {
				all().push_back({ "place", kind.name, where.name, "", OF_KERNEL });
				continue;
			}
			add_cell("place", kind.name, where.name,
				 "the program decides whether a " + std::string(kind.title) +
					 " has a sample and a signal, for an event " + where.title,
				 [&] { check_place(kind, where); });
		}
	}
	/* Only the last record of a batch overflows, by the same call as without batches. */
	for (const Effect &effect : effects)
		all().push_back({ "effect", "batch", effect.id,
				  effect.seen == &Observed::samples
					  ? "hardware.batch.rejected"
					  : std::string("cells.effect.nmi.") + effect.id,
				  "" });
	for (const Placement &where : placements)
		all().push_back({ "place", "batch", where.name,
				  where.compat ? "" : std::string("cells.place.nmi.") + where.name,
				  where.compat ? OF_KERNEL : "" });
	for (const Effect &effect : effects)
		for (const Moment &moment : moments)
			add_cell("moment", effect.id, moment.name,
				 std::string(effect.title) +
					 ": the program decides while attached, before and after " +
					 moment.title,
				 [&] { check_moment(effect, moment); });
	return true;
}();

} // namespace

const std::vector<Cell> &cells()
{
	return all();
}
