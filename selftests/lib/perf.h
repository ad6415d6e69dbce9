/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of perf_event_open(2), signals and BPF that the tests and the probe need, as objects
 * that clean up after themselves.
 *
 * Calls whose failure means that nothing can be measured end the process through one of the two
 * hooks below; calls whose errno is itself a result return 0 or that errno. After a successful
 * call errno holds leftovers and is never looked at.
 */
#ifndef PERF_H
#define PERF_H

#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "bpf/filter.h"

#ifndef PERF_ATTR_SIZE_VER7
#error "linux/perf_event.h is too old: attr.sigtrap needs the headers of Linux 5.13 or later"
#endif

#ifndef TRAP_PERF
#define TRAP_PERF 6 /* si_code of attr.sigtrap; newer than glibc 2.36 */
#endif

/* Defined by the program (harness.cc, perf_bpf_probe.cc): called in the measuring child only. */
[[noreturn]] void setup_failed(const char *what, int err);
[[noreturn]] void unavailable(const char *reason);

class Fd {
public:
	Fd() = default;
	explicit Fd(int fd)
		: fd_(fd)
	{
	}
	Fd(Fd &&other) noexcept : fd_(std::exchange(other.fd_, -1))
	{
	}
	Fd &operator=(Fd &&other) noexcept
	{
		std::swap(fd_, other.fd_);
		return *this;
	}
	~Fd()
	{
		close();
	}

	int get() const
	{
		return fd_;
	}
	bool valid() const
	{
		return fd_ >= 0;
	}
	void close()
	{
		if (fd_ >= 0)
			::close(fd_);
		fd_ = -1;
	}

private:
	int fd_ = -1;
};

enum class Access : uint32_t {
	EXECUTE = HW_BREAKPOINT_X,
	WRITE = HW_BREAKPOINT_W,
	READ_WRITE = HW_BREAKPOINT_RW, /* x86 has no breakpoint on reads alone */
};

/*
 * A disabled breakpoint that overflows on every hit (sample_period 1), whose samples hold IP and
 * ADDR, and which wakes its poller at every sample (wakeup_events 1).
 *
 * exclude_kernel, because a hit in kernel mode runs in NMI context and a program that touches the
 * watched word would hit again. @len is in bytes: 1, 2, 4 or 8.
 */
perf_event_attr breakpoint(Access access, const volatile void *addr, size_t len);

/* On the first instruction of @function, where its arguments still sit in their registers. */
perf_event_attr breakpoint(void (*function)(uint64_t));

/* A disabled software event, PERF_COUNT_SW_*, that counts and never overflows. */
perf_event_attr software(uint64_t config);

/*
 * attr.defer_callchain and attr.defer_output: the callchain is unwound on the way back to user
 * mode, and written as a record of its own. Newer than the headers here.
 */
void defer_callchain(perf_event_attr &attr);

constexpr uint32_t RECORD_CALLCHAIN_DEFERRED = 22; /* PERF_RECORD_CALLCHAIN_DEFERRED */

/* Whether the kernel knows attr.sigtrap, which came with 5.13. */
bool has_sigtrap();

/* By the version it gives: for what it does, and none can ask it. */
bool kernel_before(int major, int minor);

class Filter;

class Event {
public:
	/*
	 * perf_event_open(2), in the group of @leader if there is one. ENOENT, EOPNOTSUPP and
	 * ENODEV for a breakpoint or a hardware counter, and EINVAL or E2BIG for what the kernel
	 * refuses in a bare event too, mean that the kernel or machine lacks it: unavailable().
	 */
	explicit Event(const perf_event_attr &attr, pid_t pid = 0, int cpu = -1,
		       const Event *leader = nullptr);

	/* One that somebody else has opened. */
	explicit Event(Fd fd)
		: fd_(std::move(fd))
	{
	}

	int fd() const
	{
		return fd_.get();
	}
	void close()
	{
		fd_.close();
	}
	void enable();
	void disable();

	/*
	 * PERF_EVENT_IOC_REFRESH: adds @n to the limit of overflows and enables. The event is
	 * disabled, with POLL_HUP to its fasync owner, by the overflow that uses up the limit.
	 * EINVAL with attr.inherit or without a sample period.
	 */
	int refresh(int n);
	void must_refresh(int n);

	/*
	 * PERF_EVENT_IOC_SET_BPF: until the event is closed. EEXIST with a program there already,
	 * EINVAL for a program of another type.
	 */
	int attach(const Filter &filter);
	void must_attach(const Filter &filter);

	/*
	 * PERF_EVENT_IOC_MODIFY_ATTRIBUTES: moves a breakpoint. attr.disabled says whether it is
	 * enabled afterwards.
	 */
	void modify(perf_event_attr attr);

	/* PERF_EVENT_IOC_PERIOD */
	void set_period(uint64_t period);

	/* PERF_EVENT_IOC_SET_OUTPUT: from now on into the ring of @other. */
	void write_to(const Event &other);

	/* Hits of this event and of its inherited children, those that have exited among them. */
	uint64_t count() const;
	/* All that read(2) says, laid out as attr.read_format has it. */
	std::vector<uint64_t> read_words() const;
	/* PERF_EVENT_IOC_ID */
	uint64_t id() const;

	/* O_ASYNC: SIGIO to the process, at every overflow. */
	void async();
	/* The same with F_SETSIG and F_OWNER_TID: @sig, with si_code and si_fd, to the thread. */
	void async(int sig, pid_t tid);
	/* To a thread, a process or a group: F_OWNER_TID, F_OWNER_PID, F_OWNER_PGRP. */
	void async(int sig, int owner_type, pid_t owner);

private:
	Fd fd_;
};

/* The event's ring buffer, read and emptied by drain(). */
class Ring {
public:
	static constexpr size_t DATA_PAGES = 8; /* a power of two; some 1300 samples */

	enum class Mode {
		NORMAL, /* the kernel writes no further than the reader has read */
		OVERWRITE, /* mapped read-only: it goes on; wants attr.write_backward */
	};

	/* mmap(2) of the event; EINVAL for an inherited event of a task. */
	explicit Ring(const Event &event, Mode mode = Mode::NORMAL, size_t data_pages = DATA_PAGES);
	~Ring();
	Ring(const Ring &) = delete;

	/* Consumes what is there; with OVERWRITE looks at it, the newest record first. */
	void drain();
	/* Consumes what is there: the words of each sample, header and all. Not with OVERWRITE. */
	std::vector<std::vector<uint64_t>> take_samples();
	/* As if drain() had seen nothing yet: for more records than it can remember. */
	void forget()
	{
		seen_count_ = 0;
	}
	/* Bytes that the data part holds. */
	size_t size() const
	{
		return data_size_;
	}
	/* Records of @type (PERF_RECORD_*) that drain() has seen. */
	uint64_t records(uint32_t type) const;
	uint64_t samples() const
	{
		return records(PERF_RECORD_SAMPLE);
	}
	/* Records that the kernel had no room for, as PERF_RECORD_LOST says. */
	uint64_t lost() const;
	/* Samples whose PERF_SAMPLE_ADDR is @addr. */
	uint64_t samples_at(const volatile void *addr) const;
	/* Of the same word of all samples, whatever attr.sample_type makes it: which ones came. */
	uint64_t sum() const;

	/*
	 * What poll(2) says now, with no wait: POLLIN once after each wakeup, since the kernel
	 * clears its flag (rb->poll) as it reports it; see perf_poll().
	 */
	bool poll_ready() const;

private:
	template <typename Record> void consume(Record record);

	struct Seen {
		uint32_t type;
		uint64_t third; /* word: of a sample ADDR, of PERF_RECORD_LOST how many */
	};
	Mode mode_;
	void *map_;
	size_t data_size_;
	int fd_;
	size_t seen_count_ = 0;
	static constexpr size_t MOST = 2048; /* records remembered, of all drain()s together */
	Seen seen_[MOST];
};

/*
 * Catches and counts signals, also by si_code (POLL_IN, POLL_HUP, TRAP_PERF). A signal that
 * irq_work or task_work sends to the hitting task itself arrives before that task executes its
 * next instructions, so the counts are exact with no waiting.
 */
class Signals {
public:
	explicit Signals(std::initializer_list<int> sigs);
	~Signals();
	Signals(const Signals &) = delete;

	static uint64_t count(int sig);
	static uint64_t count(int sig, int code);
	/* What came with the last one. */
	static siginfo_t last(int sig);

private:
	static constexpr int MAX = 4;
	int used_ = 0;
	int sig_[MAX];
	struct sigaction old_[MAX];
};

/* What the kernel says with a SIGTRAP of attr.sigtrap, for which glibc 2.36 has no names. */
struct TrapInfo {
	uint64_t addr; /* si_addr */
	uint64_t data; /* si_perf_data: attr.sig_data */
	uint32_t type; /* si_perf_type: attr.type */
	uint32_t flags; /* si_perf_flags */
};

constexpr uint32_t TRAP_WAS_BLOCKED = 1; /* TRAP_PERF_FLAG_ASYNC */

TrapInfo trap_info(const siginfo_t &info);

/* The CPUs that the calling thread may run on. */
std::vector<int> usable_cpus();

/* In the kernel's text, as /proc/kallsyms has it; 0 if it does not say. */
uint64_t kernel_address_of(const std::string &function);

/* @size bytes of zeroes that the test and its children see, until the last of them has ended. */
void *shared_with_children(size_t size);

template <typename T> T &shared_with_children()
{
	return *new (shared_with_children(sizeof(T))) T();
}
/* From now on it runs on that one. */
void run_on(int cpu);
/*
 * Leaves the CPU and comes back. A short sleep alone does not promise that: on a busy machine it
 * can be over before it began.
 */
void be_rescheduled();

/* A forked process: @body runs in it, it exits with what @body returns, and is killed with us. */
class Child {
public:
	template <typename Body>
	explicit Child(Body body)
		: pid_(spawn())
	{
		if (!pid_)
			_exit(body());
	}
	~Child();
	Child(const Child &) = delete;

	pid_t pid() const
	{
		return pid_;
	}
	/* Waits for the end, or for a ptrace stop; the status of waitpid(2). */
	int wait();

private:
	static pid_t spawn();
	pid_t pid_;
};

/*
 * A number in /proc/sys. It comes back even if the test is killed: by a guard outside of the test's
 * process group, which waits until nobody else holds the pipe, or until it is told that all is well.
 */
class Sysctl {
public:
	/* @name as "kernel/perf_event_paranoid"; unavailable() if we cannot read or set it. */
	explicit Sysctl(const char *name);
	~Sysctl();
	Sysctl(const Sysctl &) = delete;

	/* Whether the kernel takes it. */
	bool set(int value);

private:
	[[noreturn]] void guard();

	std::string file_;
	int old_ = 0, ends_[2];
	pid_t guard_;
};

/* While it lives, a clock is throttled that overflows 1000 times a second. */
class SlowSampling : Sysctl {
public:
	SlowSampling();
};

/* CLOCK_MONOTONIC */
long milliseconds_now();
/* In user mode for the most part, where asking for the time may be a system call. */
void spin(long milliseconds);

struct filter; /* the skeleton */

/* The programs of filter.bpf.c: first the types of which only one belongs to an overflow. */
enum class Program {
	ON_OVERFLOW,
	ON_TRACEPOINT,
	ON_KPROBE, /* and uprobes */
	ON_RAW_TRACEPOINT,

	/* On overflows too; beside giving a verdict, they */
	LOOKS, /* report their context */
	READS_COOKIE,
	CHECKS_COOKIE, /* slowly, against the wanted one */
	GETS_STACK,
	FILLS_RINGBUF, /* with the first argument of the function that was hit */
	TAIL_CALLS, /* ON_OVERFLOW, whose verdict then counts */
	SENDS_SIGNAL, /* SIGUSR1, to the process that was hit */
	READS_SAMPLE, /* in the kernel's own memory, where its context has no field for it */
	CALLS_REPLACEABLE, /* can_be_replaced(), which has the verdict, by REPLACES too */
	WORKS, /* take their time */

	/* Not on overflows, but in the place of a function of another program. */
	REPLACES, /* and does what READS_SAMPLE does */
};

/* A loaded program of filter.bpf.c, which at first rejects everything. */
class Filter {
public:
	/* REPLACES is loaded for can_be_replaced() of @target, where replace() puts it. */
	explicit Filter(Program which = Program::ON_OVERFLOW, const Filter *target = nullptr);
	~Filter();
	Filter(const Filter &) = delete;

	int prog_fd() const
	{
		return prog_fd_;
	}

	/* From now on: return @verdict if the condition holds, else 0. */
	void returns(uint32_t verdict);
	void returns_if(uint32_t verdict, enum filter_condition what, uint64_t wanted);

	/* From now on CHECKS_COOKIE takes @ns for it, and wants @cookie. */
	void checks(uint64_t cookie, uint64_t ns);

	/* From now on TAIL_CALLS calls @callee. */
	void tail_calls(const Filter &callee);

	/* From now on REPLACES is called; until the Fd closes. */
	Fd replace();

	/* From now on WORKS copies FILTER_BLOCK bytes from @block so many times, FILTER_LONGEST at most. */
	void works(const void *block, uint64_t times);

	/* How often the program ran. */
	uint64_t runs() const;

	/* What the last run of a program that reads or gets something saw. */
	filter_look look() const;

	/* Takes what FILLS_RINGBUF has written out of its ring. */
	std::vector<uint64_t> take() const;

	/* Whether link() can: before 5.15 there is Event::attach() alone. */
	bool can_link() const;

	/*
	 * bpf_link_create(): detaches when the Fd closes. EEXIST as for Event::attach(), which is
	 * left in @err with an invalid Fd. unavailable() before 5.15.
	 */
	Fd link(const Event &event, int *err, uint64_t cookie = 0) const;
	Fd link(const Event &event) const;

private:
	void set_callee(int fd);

	struct filter *skel_ = nullptr;
	int prog_fd_ = -1;
};

#endif
