// SPDX-License-Identifier: GPL-2.0
/* C15: the CPU limits the number of breakpoints that a task may have. */
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "harness/race.h"
#include "tests/common.h"
#include "tests/meanwhile.h"

static constexpr int SECONDS = 6;
static volatile uint64_t words[8];

static perf_event_attr on_word(int i)
{
	return breakpoint(Access::WRITE, &words[i], sizeof(words[i]));
}

/* The number of breakpoints that the calling task can still open. None of them is enabled. */
static int breakpoints_left()
{
	Fd fds[std::size(words)];
	int n = 0;

	for (auto &fd : fds) {
		fd = open_event(on_word(n));
		if (!fd.valid())
			break;
		n++;
	}
	return n;
}

/* A breakpoint on words[0], alone or in a group whose leader needs no slot. Both are inherited. */
class Inherited {
public:
	explicit Inherited(bool grouped)
	{
		perf_event_attr attr = inherited(on_word(0));

		if (grouped) {
			leader_.emplace(inherited(software(PERF_COUNT_SW_DUMMY)));
			attr.disabled = 0;
		}
		event_.emplace(attr, 0, -1, leader_ ? &*leader_ : nullptr);
	}
	void enable() { (leader_ ? *leader_ : *event_).enable(); }
	void close()
	{
		event_->close();
		if (leader_)
			leader_->close();
	}

private:
	std::optional<Event> leader_, event_;
};

/*
 * Two children have inherited the same breakpoint and another event, which their parent closes.
 * Then the first child exits with the context of the second. Returns the number of breakpoints that
 * the second child can still open.
 */
static uint64_t left_after_exit_of_sibling(bool grouped)
{
	struct Both {
		ContextSwap swap;
		std::atomic<bool> closed;
		std::atomic<uint64_t> left;
	};
	auto &both = shared_with_children<Both>();
	Inherited event(grouped);
	Event other(inherited(counter(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY)));

	event.enable();
	other.enable();

	/*
	 * Each switch between the two children swaps their contexts. The number of swaps is odd if
	 * only the first child is running when the event is closed.
	 */
	Child first([&] {
		other.close();
		while (!both.closed || !both.swap.waits)
			sched_yield();
		both.swap.give_away();
		return 0;
	});
	Child second([&] {
		other.close();
		while (!both.closed)
			usleep(1000);
		both.swap.keep();
		both.left = breakpoints_left();
		return 0;
	});

	other.close();
	both.closed = true;
	first.wait();
	both.swap.exited = true;
	second.wait();
	return both.left;
}

/*
 * A breakpoint occupies a slot of the task for which it was opened. If the parent exits with the
 * context of its child, it must not release the slot of the child's breakpoint.
 */
static void check_inherited_slots(bool grouped)
{
	run_on(usable_cpus().front());

	const int all = breakpoints_left();

	for (int round = 0; round < 10; round++) {
		uint64_t left = after_exit_with_context_of_child(
			[&] { return Inherited(grouped); },
			[](Inherited &) { return breakpoints_left(); });

		EXPECT_EQ(left, all - 1u,
			  "breakpoints available to the child besides the inherited one");
		EXPECT_EQ(left_after_exit_of_sibling(grouped), all - 1u,
			  "breakpoints available to a child after the exit of a sibling");
	}
}

TEST_OF("life.inherited.slots", "C15",
	"after its parent exits, a child cannot open more breakpoints than the CPU has slots",
	check_inherited_slots(false))

TEST_OF("life.inherited.slots.group", "C15",
	"after its parent exits, a child with an inherited group cannot open more breakpoints than "
	"the CPU has slots",
	check_inherited_slots(true))

/*
 * Counting the slots of a task and taking one must be atomic. Otherwise two threads that open the
 * last breakpoint at the same time both succeed.
 */
TEST("life.slots.together", "C15",
     "if two threads open the last free breakpoint of a task at once, exactly one succeeds")
{
	constexpr uint64_t LEAST = 20;
	const Bound bound(SECONDS, UINT64_MAX, LEAST);
	const std::vector<int> cpus = usable_cpus();
	const int all = breakpoints_left();
	const pid_t tid = gettid();
	std::atomic<uint64_t> arrived = 0, finished = 0, opened = 0;
	std::atomic<bool> done = false;
	auto rendezvous = [](std::atomic<uint64_t> &at, uint64_t round) {
		for (at++; at < 2 * round;)
			;
	};
	auto open_last = [&](int cpu, bool is_leader) {
		run_on(cpu);
		for (uint64_t round = 0;; round++) {
			if (is_leader && (opened != round || bound.reached(0, round)))
				done = true;
			rendezvous(arrived, round + 1);
			if (done)
				return round;

			Fd fd = open_event(on_word(0), tid);

			opened += fd.valid();
			rendezvous(finished, round + 1);
		}
	};

	if (cpus.size() < 2)
		unavailable("the test needs two CPUs");
	Event{ on_word(0) }; /* skips the test without breakpoints */

	uint64_t rounds;
	{
		Fd others[std::size(words)];

		for (int i = 1; i < all; i++)
			others[i] = open_event(on_word(i));

		std::thread there(open_last, cpus[1], false);

		rounds = open_last(cpus[0], true);
		there.join();
	}
	note("%lu rounds for the last of %d breakpoints, opened %lu times", rounds, all,
	     opened.load());
	EXPECT_EQ(opened, rounds, "breakpoints opened, one per round");
	bound.met(rounds, "rounds", opened != rounds);
	EXPECT_EQ(breakpoints_left(), all, "breakpoints available afterwards");
}

/* An instruction for each breakpoint: x86 has 4, arm64 up to 16 (ARM_MAX_BRP). */
constexpr int MOST = 16;

asm(".pushsection .text\n"
    ".globl row_of_nops\n"
    ".balign 16\n"
    "row_of_nops:\n"
    ".rept 16\n"
    "nop\n"
    ".endr\n"
    "ret\n"
    ".popsection\n");

extern "C" void row_of_nops();

TEST("life.slots.all", "C1",
     "if all breakpoints of the CPU are on consecutive instructions, each obeys its own program")
{
	struct Breakpoint {
		explicit Breakpoint(int i)
			: event(attr(i))
		{
		}
		static perf_event_attr attr(int i)
		{
			return breakpoint(Access::EXECUTE,
					  reinterpret_cast<const char *>(row_of_nops) +
						  i * INSTRUCTION_ALIGNMENT,
					  EXECUTE_LENGTH);
		}

		Event event;
		Ring ring{ event };
		Filter filter;
	};
	/* Every other program accepts. */
	const auto accepts = [](size_t i) { return i % 2; };
	Signals signals({ SETSIG });
	std::deque<Breakpoint> all;

	all.emplace_back(0); /* skips the test without breakpoints */
	while (all.size() < MOST && open_event(Breakpoint::attr(all.size())).valid())
		all.emplace_back(all.size());
	if (all.size() < MOST && errno != ENOSPC)
		setup_failed("perf_event_open", errno);
	for (size_t i = 0; i < all.size(); i++) {
		all[i].filter.returns(accepts(i));
		all[i].event.async(SETSIG, gettid());
		all[i].event.enable(all[i].filter);
	}
	for (uint64_t i = 0; i < HITS; i++)
		row_of_nops();
	for (size_t i = 0; i < all.size(); i++) {
		all[i].ring.drain();
		expect_hits(all[i].event, all[i].filter, HITS);
		EXPECT_EQ(all[i].ring.samples(), accepts(i) ? HITS : 0, "samples");
	}
	note("%zu breakpoints", all.size());
	EXPECT_EQ(Signals::count(SETSIG), all.size() / 2 * HITS, "signals");
}
