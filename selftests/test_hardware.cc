// SPDX-License-Identifier: GPL-2.0
/*
 * Events of a hardware PMU, which have what software has not: a context of their own that a group
 * moves to, overflows in NMI, registers that are a copy. The PMU is that of module/perf_bpf_pmu.c,
 * whose counters a test makes count when and where it likes.
 */
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <fstream>

#include "effects.h"
#include "harness.h"
#include "perf.h"

/* Where the hits of a counter come from: its files in debugfs. */
enum Context { NMI, IRQ, TASK };

static constexpr const char *contexts[] = { "nmi", "irq", "task" };

/* attr.config of the PMU: the registers are those with which the task left user mode. */
constexpr uint64_t COPY = 1;

/* A disabled counter that overflows at every hit. The kernel makes the hits, in kernel mode. */
static perf_event_attr hardware(uint64_t config = 0)
{
	perf_event_attr attr = {};

	attr.size = sizeof(attr);
	if (!(std::ifstream("/sys/bus/event_source/devices/perf_bpf_pmu/type") >> attr.type))
		unavailable("no hardware PMU at hand: insmod module/perf_bpf_pmu.ko");
	attr.config = config;
	attr.sample_period = 1;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.exclude_hv = 1;
	attr.disabled = 1;
	return attr;
}

static perf_event_attr software(uint64_t config)
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_SOFTWARE;
	attr.size = sizeof(attr);
	attr.config = config;
	return attr;
}

/* All that happens on a CPU counts, in one of the contexts; open once, written to often. */
class Hits {
public:
	explicit Hits(Context context)
		: file_(open((std::string("/sys/kernel/debug/perf_bpf_pmu/") + contexts[context])
				     .c_str(),
			     O_WRONLY | O_CLOEXEC))
	{
		if (!file_.valid())
			unavailable("no way to write to /sys/kernel/debug/perf_bpf_pmu");
	}

	/* On the CPU of the caller, or another one. */
	void make(uint64_t hits, int cpu = -1) const
	{
		char text[32];
		int length = cpu < 0 ? snprintf(text, sizeof(text), "%d", int(hits)) :
				       snprintf(text, sizeof(text), "%d %d", int(hits), cpu);

		if (write(file_.get(), text, length) != length)
			setup_failed("write to a file of perf_bpf_pmu", errno);
	}

private:
	Fd file_;
};

/* Memory that a child shares with its parent. */
template <typename T> class Shared {
public:
	Shared()
		: at_(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			   -1, 0))
	{
		if (at_ == MAP_FAILED)
			setup_failed("mmap", errno);
	}
	~Shared()
	{
		munmap(at_, sizeof(T));
	}
	Shared(const Shared &) = delete;

	T *operator->() const
	{
		return static_cast<T *>(at_);
	}

private:
	void *at_;
};

/* Two CPUs: that of the test, where it goes, and another. */
static int other_cpu()
{
	std::vector<int> cpus = usable_cpus();

	if (cpus.size() < 2)
		unavailable("one CPU alone");
	run_on(cpus[0]);
	return cpus[1];
}

/*
 * The group is taken out of the context of its task, below the software PMU, and put back below
 * the hardware one, a sibling before its leader. The task is busy on another CPU, so that each
 * step is an interrupt there.
 */
TEST("hardware.group.moved", "C8", "a hardware event takes a running software group with it")
{
	constexpr int TRIES = 20;
	struct Turns {
		std::atomic<int> wanted, made;
	};
	Hits hits(IRQ);
	Shared<Turns> turns;
	int cpu = other_cpu();
	Child busy([&] {
		run_on(cpu);
		for (int turn = 0;; turns->made = ++turn) {
			while (turns->wanted == turn)
				;
			hits.make(HITS);
		}
		return 0;
	});
	perf_event_attr attr = hardware();

	attr.sample_period = 0;
	attr.disabled = 0;
	/* Until it has run once it may be on its way there. */
	for (int turn = 1; turn <= TRIES; turn++) {
		Event leader(software(PERF_COUNT_SW_TASK_CLOCK), busy.pid());
		Event sibling(software(PERF_COUNT_SW_TASK_CLOCK), busy.pid(), -1, &leader);
		Event moves(attr, busy.pid(), -1, &leader);
		uint64_t before[] = { leader.count(), sibling.count() };

		turns->wanted = turn;
		while (turns->made != turn)
			usleep(1000);
		EXPECT_EQ(moves.count(), HITS, "hits counted by the hardware event");
		EXPECT_EQ(leader.count() > before[0], true, "the leader goes on");
		EXPECT_EQ(sibling.count() > before[1], true, "the sibling goes on");
	}
}
