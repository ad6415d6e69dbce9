// SPDX-License-Identifier: GPL-2.0
/*
 * Calls everything that reaches a perf event with a program on it, in every order and with every
 * kind of bad argument, while the events are hit. For a guest: a kernel with a defect dies of it.
 *
 * An episode is a process of its own in which two threads, and the children that they fork, share
 * a pool of descriptors; it may die of its signals. Each has a seed of its own, which the kernel
 * log is told, so that one can be replayed. In the end everything is closed, and what the kernel
 * counts must be what it was before.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <glob.h>
#include <linux/bpf.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "lib/effects.h"
#include "lib/perf.h"
#include "lib/random.h"

[[noreturn]] static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "perf_bpf_fuzz: %s: %s\n", what, why);
	exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, strerror(err));
}

void unavailable(const char *reason)
{
	give_up("cannot begin", reason);
}

/* --- what all episodes share, and what the parent prepares for them --- */

constexpr size_t MOST_KINDS = 80, ERRNOS = 530;

struct Counts {
	std::atomic<uint64_t> tried[MOST_KINDS], errors[MOST_KINDS][ERRNOS]; /* [0]: succeeded */
	std::atomic<uint64_t> calls, hits, signals, reads;
};

static Counts *counts;

/* The programs that are there all the time: of the right type, and of others. */
static std::vector<int> right_progs, wrong_progs;
static std::vector<std::unique_ptr<Filter>> filters;
static uint64_t tracepoint_id;
/* In the overflow path, and what is written or called by others all the time. */
static std::vector<uint64_t> kernel_text, kernel_data;

/* --- what the threads of an episode share --- */

constexpr int CALLS_EACH = 250; /* of a thread */

/*
 * Descriptors, each kind in slots of its own. Threads exchange what is in a slot, so that each
 * descriptor is closed by one of them alone, though the others may be in a call with it.
 */
class Pool {
public:
	static constexpr int SLOTS = 10;

	void put(Random &random, int fd)
	{
		int old = slots_[random.below(SLOTS)].exchange(fd);

		if (old >= 0)
			close(old);
	}
	/* Mostly one that is open. */
	int any(Random &random) const
	{
		int fd = -1;

		for (int i = 0; i < SLOTS && fd < 0; i++)
			fd = slots_[random.below(SLOTS)];
		return fd;
	}
	int take(Random &random)
	{
		return slots_[random.below(SLOTS)].exchange(-1);
	}
	void close_all()
	{
		for (auto &slot : slots_)
			if (int fd = slot.exchange(-1); fd >= 0)
				close(fd);
	}
	Pool()
	{
		for (auto &slot : slots_)
			slot = -1;
	}

private:
	std::atomic<int> slots_[SLOTS];
};

static Pool breakpoints, others, links, progs;

static constexpr size_t PAGE = 4096;

struct Mapping {
	char *at;
	size_t size;
	bool writable;
};

/*
 * The attributes of each descriptor, for MODIFY_ATTRIBUTES, which wants most of them unchanged.
 * Torn by threads, they are bad input.
 */
static perf_event_attr opened[256];

static std::atomic<Mapping *> mappings[4];
static std::atomic<pid_t> children[3];
static std::atomic<pid_t> threads[2];
/*
 * Since 6.1 a kernel stops for ever where PR_TASK_PERF_EVENTS_* meets MODIFY_ATTRIBUTES: one takes
 * perf_event_mutex and then ctx->mutex, the other the reverse, by bp_constraints_lock(). So an
 * episode has only one of the two.
 */
static bool has_prctl;

static int mail[2]; /* a socket pair, to send descriptors through */
static volatile uint64_t watched[4];

/* --- one thread, or one child, of an episode --- */

/* A call that there was nothing to make with. */
constexpr long NOTHING = LONG_MIN;

struct Worker {
	Random random;
	int depth; /* of forks */

	void run(int calls);
	void hits();

	Pool &events()
	{
		return random.one_in(3) ? others : breakpoints;
	}
	/* Of an event, but now and then of something else, or of nothing. */
	int event()
	{
		if (random.one_in(40))
			return random.of({ -1, 0, mail[0], links.any(random), progs.any(random),
					   99999, INT_MIN });
		return events().any(random);
	}
	int prog()
	{
		if (random.one_in(12))
			return random.one_in(2) ? random.of(wrong_progs) : event();
		if (random.one_in(2))
			if (int fd = progs.any(random); fd >= 0)
				return fd;
		return random.of(right_progs);
	}
	pid_t target()
	{
		return random.of({ 0, 0, 0, 0, threads[0].load(), threads[1].load(),
				   children[0].load(), children[1].load() });
	}
	/* Whoever gets a signal is of this episode, or nobody. */
	pid_t owner()
	{
		return random.of({ getpid(), gettid(), threads[1].load(), -getpgrp(), 0,
				   children[0].load(), 4'194'303 });
	}
	uint64_t odd_number()
	{
		return random.of<uint64_t>({ 0, 1, 2, 3, 4095, 4096, 1ull << 31, 1ull << 32,
					     1ull << 62, 1ull << 63, UINT64_MAX, random.next() });
	}
};

static long outcome(long returned)
{
	return returned < 0 ? -errno : returned;
}

void Worker::hits()
{
	const int times = 1 + random.below(6);

	for (int i = 0; i < times; i++) {
		switch (random.below(6)) {
		case 0:
		case 1:
			hit(i);
			break;
		case 2:
			hit_other(i);
			break;
		case 3:
			watched[random.below(std::size(watched))] = i;
			break;
		case 4:
			(void)watched[random.below(std::size(watched))];
			break;
		case 5: /* in kernel mode */
			syscall(SYS_clock_gettime, CLOCK_MONOTONIC,
				&watched[random.below(std::size(watched) - 1)]);
			syscall(SYS_getppid);
		}
	}
	counts->hits.fetch_add(times, std::memory_order_relaxed);
}

/* --- attributes: valid ones of each kind, varied, and then with a field or two spoilt --- */

/* A cpu-clock that is due before its interrupt has ended leaves no time for anything else. */
static uint64_t clock_period(Random &random)
{
	return random.of<uint64_t>({ 200'000, 1'000'000, 10'000'000, 1ull << 62 });
}

static perf_event_attr of_breakpoint(Random &random)
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
	switch (random.below(8)) {
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
	attr.sigtrap = attr.remove_on_exec = has_sigtrap() && random.one_in(4);
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

static constexpr void (*spoil[])(perf_event_attr &, Worker &) = {
	[](auto &attr, Worker &w) { attr.bp_type = w.random.below(9); },
	[](auto &attr, Worker &w) { attr.bp_len = w.random.one_in(2) ? 8 : w.odd_number(); },
	[](auto &attr, Worker &w) { attr.bp_addr = odd_address(w.random); },
	[](auto &attr, Worker &w) {
		attr.bp_addr = odd_address(w.random);
		attr.bp_len = sizeof(long);
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

static perf_event_attr attributes(Worker &w, bool of_breakpoints)
{
	perf_event_attr attr = of_breakpoints ? of_breakpoint(w.random) : of_other(w.random);

	vary(attr, w.random);
	/* What is spoilt once can still be valid, what is spoilt twice hardly. */
	if (w.random.one_in(4))
		w.random.of(spoil)(attr, w);
	if (w.random.one_in(24))
		w.random.of(spoil)(attr, w);
	if (is_clock(attr) && !attr.freq)
		attr.sample_period = clock_period(w.random);
	return attr;
}

/* --- the calls --- */

static long open_event(Worker &w, bool of_breakpoints)
{
	Random &random = w.random;
	perf_event_attr attr = attributes(w, of_breakpoints);
	pid_t pid = w.target();
	int cpu = -1, group = -1;
	unsigned long flags = random.one_in(2) ? PERF_FLAG_FD_CLOEXEC : 0;

	if (random.one_in(8))
		cpu = random.below(2);
	if (random.one_in(12)) {
		pid = -1;
		cpu = random.below(2);
	}
	if (random.one_in(40))
		cpu = random.of({ -2, 77, INT_MAX });
	if (random.one_in(40))
		pid = random.of({ 1, -2, INT_MAX, getppid() });
	/*
	 * Since 5.13 a kernel dies of an exec in the task that another one opens such an event on:
	 * it is taken off the list of its owner before it is there.
	 */
	if (pid && pid != threads[0] && pid != threads[1])
		attr.remove_on_exec = attr.sigtrap = 0;
	if (random.one_in(8))
		group = w.event();
	if (random.one_in(20))
		flags |= 1ul << random.below(5);

	long fd = outcome(syscall(SYS_perf_event_open, &attr, pid, cpu, group, flags));

	if (fd < 0)
		return fd;
	if (fd < long(std::size(opened)))
		opened[fd] = attr;
	if (random.one_in(3))
		ioctl(fd, PERF_EVENT_IOC_SET_BPF, w.prog());
	(attr.type == PERF_TYPE_BREAKPOINT ? breakpoints : others).put(random, fd);
	return fd;
}

static long plain_ioctl(Worker &w, unsigned long request)
{
	return outcome(
		ioctl(w.event(), request, w.random.one_in(8) ? w.odd_number() : w.random.below(2)));
}

static long modify(Worker &w)
{
	if (has_prctl)
		return NOTHING;

	int fd = breakpoints.any(w.random);
	perf_event_attr place = of_breakpoint(w.random), attr = place;

	if (fd >= 0 && fd < int(std::size(opened))) {
		attr = opened[fd];
		attr.bp_addr = place.bp_addr;
		attr.bp_len = place.bp_len;
		attr.bp_type = place.bp_type;
	}
	attr.disabled = w.random.one_in(3);
	if (w.random.one_in(6))
		w.random.of(spoil)(attr, w);
	return outcome(ioctl(fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr));
}

static long attach(Worker &w)
{
	/* What is no overflow filter, on what is no breakpoint: on a tracepoint it may be right. */
	if (w.random.one_in(4))
		return outcome(ioctl(others.any(w.random), PERF_EVENT_IOC_SET_BPF,
				     w.random.of(wrong_progs)));
	return outcome(ioctl(w.event(), PERF_EVENT_IOC_SET_BPF, w.prog()));
}

static long load_prog(Worker &w)
{
	bpf_insn insns[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0,
		  w.random.of({ 0, 0, 1, 2, INT_MIN }) },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	bpf_prog_type type = w.random.one_in(8) ? static_cast<bpf_prog_type>(w.random.below(33))
						: BPF_PROG_TYPE_PERF_EVENT;
	int fd = bpf_prog_load(type, "fuzz", "GPL", insns, std::size(insns), nullptr);

	if (fd >= 0)
		progs.put(w.random, fd);
	return fd;
}

static long create_link(Worker &w)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts,
		    .perf_event = { .bpf_cookie = w.random.one_in(3) ? w.random.next() : 0 });
	auto type = w.random.one_in(20) ? static_cast<bpf_attach_type>(w.random.below(50))
					: BPF_PERF_EVENT;

	if (w.random.one_in(30))
		opts.flags = w.odd_number();

	int fd = bpf_link_create(w.prog(), w.event(), type, &opts);

	if (fd >= 0)
		links.put(w.random, fd);
	return fd;
}

static long set_owner(Worker &w)
{
	f_owner_ex ex = { static_cast<__pid_type>(w.random.below(4)), w.owner() };

	/* Of what fcntl(2) calls a group or a process, only ours. */
	if (ex.type == F_OWNER_PGRP)
		ex.pid = getpgrp();
	ex.pid = ex.pid < 0 ? -ex.pid : ex.pid;
	return outcome(fcntl(w.event(), F_SETOWN_EX, &ex));
}

static long map_ring(Worker &w)
{
	const size_t pages = w.random.one_in(12) ? w.odd_number() % 600 : 1ul << w.random.below(4);
	const bool writable = !w.random.one_in(4);
	/* Behind the ring is the place of what a PMU traces by itself. */
	const off_t at = w.random.one_in(30) ? 9 * PAGE : 0;
	const size_t size = (pages + !at) * PAGE;
	void *map = mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
			 w.event(), at);

	if (map == MAP_FAILED)
		return -errno;

	auto *mapping = new Mapping{ static_cast<char *>(map), size, writable };

	if (Mapping *old = mappings[w.random.below(std::size(mappings))].exchange(mapping)) {
		munmap(old->at, old->size);
		delete old;
	}
	return 0;
}

static long unmap_ring(Worker &w)
{
	Mapping *mapping = mappings[w.random.below(std::size(mappings))].exchange(nullptr);

	if (!mapping)
		return NOTHING;

	long done = outcome(munmap(mapping->at, mapping->size));

	delete mapping;
	return done;
}

/* What user space may do to the page that it shares with the kernel, and to its mapping. */
static long use_ring(Worker &w)
{
	auto &slot = mappings[w.random.below(std::size(mappings))];
	Mapping *mapping = slot.exchange(nullptr);
	long done = 0;

	if (!mapping)
		return NOTHING;
	auto *page = reinterpret_cast<perf_event_mmap_page *>(mapping->at);
	switch (w.random.below(mapping->writable ? 6 : 3)) {
	case 0:
		done = outcome(mprotect(mapping->at, mapping->size, PROT_READ));
		mapping->writable = false;
		break;
	case 1: /* part of it; the rest stays */
		if (mapping->size > 2 * PAGE) {
			mapping->size -= PAGE;
			done = outcome(munmap(mapping->at + mapping->size, PAGE));
		}
		break;
	case 2:
		done = outcome(madvise(mapping->at, mapping->size,
				       w.random.of({ MADV_DOFORK, MADV_DONTNEED, MADV_REMOVE })));
		break;
	case 3: /* as a reader that lies */
		page->data_tail = w.odd_number();
		break;
	default:
		page->data_tail = page->data_head;
	}
	if (Mapping *newer = slot.exchange(mapping)) {
		munmap(newer->at, newer->size);
		delete newer;
	}
	return done;
}

static long send_fd(Worker &w)
{
	char byte = 0, space[CMSG_SPACE(sizeof(int))] = {};
	iovec data = { &byte, 1 };
	msghdr message = {};
	int fd = w.random.one_in(3) ? links.any(w.random) : w.event();

	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = space;
	message.msg_controllen = sizeof(space);

	cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return outcome(sendmsg(mail[0], &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

static long receive_fd(Worker &w)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	iovec data = { &byte, 1 };
	msghdr message = {};
	int fd;

	message.msg_iov = &data;
	message.msg_iovlen = 1;
	message.msg_control = space;
	message.msg_controllen = sizeof(space);
	if (recvmsg(mail[1], &message, MSG_DONTWAIT) < 0)
		return errno == EAGAIN ? NOTHING : -errno;

	cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (!header)
		return NOTHING;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	others.put(w.random, fd);
	return 0;
}

static void end_child(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR)
		;
}

/* It hits, makes calls with its copies of the descriptors, and ends in one of several ways. */
static long fork_child(Worker &w)
{
	if (w.depth >= 2)
		return NOTHING;

	Random random(w.random.next());
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid) {
		Worker child = { random, w.depth + 1 };
		static const char self[] = "/proc/self/exe";

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (auto &other : children)
			other = 0;
		for (auto &other : mappings) /* rings are not inherited */
			other = nullptr;
		child.hits();
		child.run(random.below(12));
		switch (random.below(6)) {
		case 0:
			execl(self, self, "--hit", nullptr);
			_exit(1);
		case 1:
			for (int i = 0; i < 100; i++) {
				child.hits();
				usleep(1000);
			}
			_exit(0);
		default:
			_exit(0);
		}
	}
	end_child(children[w.random.below(std::size(children))].exchange(pid));
	return 0;
}

static const struct Kind {
	const char *name;
	unsigned weight;
	long (*call)(Worker &w);
	const char *never = nullptr; /* why none succeeds */
} kinds[] = {
	{ "open breakpoint", 60, [](Worker &w) { return open_event(w, true); } },
	{ "open other", 30, [](Worker &w) { return open_event(w, false); } },
	{ "open rubbish", 2,
	  [](Worker &w) {
		  perf_event_attr attr;
		  auto *bytes = reinterpret_cast<unsigned char *>(&attr);

		  for (size_t i = 0; i < sizeof(attr); i++)
			  bytes[i] = w.random.one_in(4) ? w.random.next() : 0;
		  /* Not with what would be a clock, see clock_period(). */
		  attr.type |= 8;
		  return outcome(syscall(SYS_perf_event_open, &attr, w.target(), -1, -1, 0));
	  },
	  "the attributes are random bytes" },
	{ "close event", 25,
	  [](Worker &w) {
		  int fd = w.events().take(w.random);

		  return fd < 0 ? NOTHING : outcome(close(fd));
	  } },
	{ "dup event", 8,
	  [](Worker &w) {
		  Pool &pool = w.events();
		  long fd = outcome(dup(pool.any(w.random)));

		  if (fd >= 0)
			  pool.put(w.random, fd);
		  return fd;
	  } },
	{ "send event", 6, send_fd },
	{ "receive event", 8, receive_fd },

	{ "enable", 20, [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_ENABLE); } },
	{ "disable", 10, [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_DISABLE); } },
	{ "refresh", 20,
	  [](Worker &w) {
		  return outcome(ioctl(w.event(), PERF_EVENT_IOC_REFRESH,
				       w.random.one_in(6) ? w.odd_number() : w.random.below(4)));
	  } },
	{ "reset", 4, [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_RESET); } },
	{ "period", 12,
	  [](Worker &w) {
		  bool breakpoint = w.random.below(3);
		  uint64_t period = breakpoint ? w.odd_number() : clock_period(w.random);

		  if (breakpoint && w.random.one_in(2))
			  period = 1 + w.random.below(3);
		  return outcome(ioctl((breakpoint ? breakpoints : others).any(w.random),
				       PERF_EVENT_IOC_PERIOD,
				       w.random.one_in(30) ? nullptr : &period));
	  } },
	{ "set output", 12,
	  [](Worker &w) {
		  return outcome(ioctl(w.event(), PERF_EVENT_IOC_SET_OUTPUT,
				       w.random.one_in(3) ? -1l : w.event()));
	  } },
	{ "set filter", 4,
	  [](Worker &w) {
		  static const char *const filters[] = {
			  "common_pid != 0", "common_pid == 0", "0", "start 0/4", "((((", "",
			  "nr == 110"
		  };

		  return outcome(ioctl(w.random.one_in(20) ? w.event() : others.any(w.random),
				       PERF_EVENT_IOC_SET_FILTER, w.random.of(filters)));
	  } },
	{ "pause output", 6,
	  [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_PAUSE_OUTPUT); } },
	{ "query bpf", 3,
	  [](Worker &w) {
		  uint32_t query[2 + 8] = { uint32_t(w.random.below(9)) };

		  return outcome(ioctl(others.any(w.random), PERF_EVENT_IOC_QUERY_BPF, query));
	  } },
	{ "modify", 25, modify },
	{ "id", 3,
	  [](Worker &w) {
		  uint64_t id;

		  return outcome(ioctl(w.event(), PERF_EVENT_IOC_ID, &id));
	  } },
	{ "unknown ioctl", 2,
	  [](Worker &w) { return outcome(ioctl(w.event(), _IO('$', 12 + w.random.below(99)), 0)); },
	  "there is no such request" },

	{ "attach by ioctl", 25, attach },
	{ "attach by link", 35, create_link },
	{ "close link", 30,
	  [](Worker &w) {
		  int fd = links.take(w.random);

		  return fd < 0 ? NOTHING : outcome(close(fd));
	  } },
	{ "update link", 3,
	  [](Worker &w) {
		  int link = links.any(w.random);

		  return long(bpf_link_update(link, w.prog(), nullptr));
	  },
	  "links of perf events have no update" },
	{ "detach link", 3, [](Worker &w) { return long(bpf_link_detach(links.any(w.random))); },
	  "links of perf events have no detach" },
	{ "ask link", 3,
	  [](Worker &w) {
		  bpf_link_info info = {};
		  uint32_t size = sizeof(info);

		  return long(bpf_obj_get_info_by_fd(links.any(w.random), &info, &size));
	  } },
	{ "query task", 3,
	  [](Worker &w) {
		  char name[64];
		  uint32_t size = sizeof(name), prog, type;
		  unsigned long long offset, address;

		  return long(bpf_task_fd_query(getpid(), others.any(w.random), 0, name, &size,
						&prog, &type, &offset, &address));
	  } },
	{ "load program", 20, load_prog },
	{ "close program", 15,
	  [](Worker &w) {
		  int fd = progs.take(w.random);

		  return fd < 0 ? NOTHING : outcome(close(fd));
	  } },
	{ "change verdict", 15,
	  [](Worker &w) {
		  filters[w.random.below(filters.size())]->returns_if(
			  w.random.below(2), static_cast<filter_condition>(w.random.below(4)),
			  w.random.below(3));
		  return 0l;
	  } },

	{ "set owner", 10,
	  [](Worker &w) { return outcome(fcntl(w.event(), F_SETOWN, w.owner())); } },
	{ "set owner ex", 10, set_owner },
	{ "set signal", 10,
	  [](Worker &w) {
		  return outcome(fcntl(w.event(), F_SETSIG,
				       w.random.one_in(60)
					       ? w.random.of({ SIGKILL, 65, -1 })
					       : w.random.of({ 0, SIGIO, SIGTRAP, SIGUSR2,
							       SIGRTMIN + 1, SIGRTMIN + 2 })));
	  } },
	{ "set async", 25,
	  [](Worker &w) {
		  return outcome(fcntl(w.event(), F_SETFL,
				       O_NONBLOCK | (w.random.below(4) ? O_ASYNC : 0)));
	  } },

	{ "mmap", 20, map_ring },
	{ "munmap", 10, unmap_ring },
	{ "use ring", 10, use_ring },
	{ "read", 15,
	  [](Worker &w) {
		  uint64_t values[64];

		  return outcome(read(w.event(),
				      w.random.one_in(20) ? nullptr : static_cast<void *>(values),
				      w.random.one_in(8) ? w.random.below(24) : sizeof(values)));
	  } },
	{ "poll", 8,
	  [](Worker &w) {
		  pollfd fds[] = { { w.event(), POLLIN, 0 }, { w.event(), POLLIN, 0 } };

		  return outcome(poll(fds, 2, w.random.one_in(10)));
	  } },

	{ "fork", 12, fork_child },
	{ "reap", 8,
	  [](Worker &w) {
		  pid_t pid = children[w.random.below(std::size(children))].exchange(0);

		  end_child(pid);
		  return pid ? 0l : NOTHING;
	  } },
	{ "thread", 5,
	  [](Worker &w) {
		  Worker other = { Random(w.random.next()), w.depth };

		  std::thread([&] { other.hits(); }).join();
		  return 0l;
	  } },
	{ "prctl", 30,
	  [](Worker &w) {
		  if (!has_prctl)
			  return NOTHING;
		  return outcome(prctl(w.random.one_in(3) ? PR_TASK_PERF_EVENTS_DISABLE
							  : PR_TASK_PERF_EVENTS_ENABLE));
	  } },
	{ "block signals", 6,
	  [](Worker &w) {
		  sigset_t set;

		  sigemptyset(&set);
		  for (int sig : { SIGTRAP, SIGIO, SIGRTMIN + 1 })
			  if (w.random.one_in(3))
				  sigaddset(&set, sig);
		  return -long(pthread_sigmask(SIG_SETMASK, &set, nullptr));
	  } },
	{ "move", 6,
	  [](Worker &w) {
		  cpu_set_t set;

		  CPU_ZERO(&set);
		  CPU_SET(w.random.below(2), &set);
		  return outcome(sched_setaffinity(0, sizeof(set), &set));
	  } },
};

constexpr size_t KINDS = std::size(kinds);
static_assert(KINDS <= MOST_KINDS);

void Worker::run(int calls)
{
	/* Each has a taste of its own: it is excess and abstinence that bring about rare meetings. */
	unsigned weights[KINDS], sum = 0;

	for (size_t i = 0; i < KINDS; i++)
		sum += weights[i] = kinds[i].weight * random.of({ 0, 1, 1, 1, 1, 6 });
	if (!sum)
		return;
	while (calls > 0) {
		unsigned at = random.below(sum);
		size_t kind = 0;

		while (at >= weights[kind])
			at -= weights[kind++];

		long result = kinds[kind].call(*this);

		if (random.below(4))
			hits();
		calls--;
		if (result == NOTHING)
			continue;
		counts->tried[kind].fetch_add(1, std::memory_order_relaxed);
		counts->errors[kind][result < 0 ? std::min<long>(-result, ERRNOS - 1) : 0]
			.fetch_add(1, std::memory_order_relaxed);
		counts->calls.fetch_add(1, std::memory_order_relaxed);
	}
}

static void on_signal(int)
{
	counts->signals.fetch_add(1, std::memory_order_relaxed);
}

/* Every eighth episode has no rights but those that its open descriptors give it. */
static void drop_rights()
{
	constexpr uid_t NOBODY = 65534;

	if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY))
		setup_failed("setresuid", errno);
	prctl(PR_SET_DUMPABLE, 1);
}

[[noreturn]] static void episode(uint64_t seed)
{
	Random random(seed);
	Worker one = { Random(random.next()), 0 }, two = { Random(random.next()), 0 };

	setpgid(0, 0);
	for (int sig : { SIGTRAP, SIGIO, SIGUSR1, SIGUSR2, SIGRTMIN + 1, SIGRTMIN + 2 })
		signal(sig, on_signal);
	/* Some die of the signals, as whoever does not expect them. */
	if (random.one_in(10))
		signal(random.of({ SIGTRAP, SIGIO }), SIG_DFL);
	if (random.one_in(8))
		drop_rights();
	has_prctl = random.one_in(8);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, mail))
		setup_failed("socketpair", errno);
	threads[0] = gettid();

	std::thread second([&] {
		threads[1] = gettid();
		two.run(CALLS_EACH);
	});

	one.run(CALLS_EACH);
	second.join();
	/* What is left is closed here, or as the process exits. */
	if (random.one_in(2))
		for (Pool *pool : { &links, &breakpoints, &progs, &others })
			pool->close_all();
	_exit(0);
}

/* --- the parent --- */

static void read_kallsyms()
{
	std::ifstream symbols("/proc/kallsyms");

	for (std::string line; std::getline(symbols, line);) {
		std::istringstream words(line);
		uint64_t address = 0;
		std::string type, name;

		words >> std::hex >> address >> type >> name;
		/* Not what irq_work calls: a hit there would raise the next one, for ever. */
		for (auto wanted : { "__x64_sys_getppid", "__perf_event_overflow",
				     "bpf_overflow_handler", "perf_event_output_forward" })
			if (address && name == wanted)
				kernel_text.push_back(address);
		for (auto wanted : { "jiffies", "jiffies_64" })
			if (address && name == wanted)
				kernel_data.push_back(address);
	}
}

static void prepare_programs()
{
	static constexpr struct {
		Program id;
		bool right;
	} all[] = {
		{ Program::ON_OVERFLOW, true },	  { Program::ON_OVERFLOW, true },
		{ Program::LOOKS, true },	  { Program::GETS_STACK, true },
		{ Program::FILLS_RINGBUF, true }, { Program::TAIL_CALLS, true },
		{ Program::SENDS_SIGNAL, true },  { Program::ON_TRACEPOINT, false },
		{ Program::ON_KPROBE, false },	  { Program::ON_RAW_TRACEPOINT, false },
	};

	for (auto &one : all) {
		filters.push_back(std::make_unique<Filter>(one.id));
		filters.back()->returns(filters.size() % 2);
		(one.right ? right_progs : wrong_progs).push_back(filters.back()->prog_fd());
	}
	if (filters[0]->can_link()) {
		filters.push_back(std::make_unique<Filter>(Program::READS_COOKIE));
		filters.back()->returns(1);
		right_progs.push_back(filters.back()->prog_fd());
	}
}

template <typename Next> static uint64_t count_ids(Next next)
{
	uint64_t number = 0;

	for (uint32_t id = 0; !next(id, &id);)
		number++;
	return number;
}

/* What the kernel has of what the calls make: in the end there must be no more than before. */
static std::map<std::string, uint64_t> census()
{
	std::map<std::string, uint64_t> found = {
		{ "BPF programs", count_ids(bpf_prog_get_next_id) },
		{ "BPF maps", count_ids(bpf_map_get_next_id) },
		{ "BPF links", count_ids(bpf_link_get_next_id) },
	};
	/* Of these caches all objects are ours, where the kernel tells them apart. */
	static const char *const caches[] = { "perf_event", "fasync_cache" };

	for (auto cache : caches)
		std::ofstream(std::string("/sys/kernel/slab/") + cache + "/shrink") << 1;

	std::ifstream slabs("/proc/slabinfo");

	for (std::string line; std::getline(slabs, line);) {
		std::istringstream words(line);
		std::string name;
		uint64_t objects = 0;

		words >> name >> objects;
		for (auto cache : caches)
			if (name == cache)
				found["slab " + name] = objects;
	}
	return found;
}

static bool more(const std::map<std::string, uint64_t> &now,
		 const std::map<std::string, uint64_t> &before)
{
	return std::any_of(now.begin(), now.end(), [&](auto &item) {
		auto was = before.find(item.first);

		return was == before.end() || item.second > was->second;
	});
}

/* How many breakpoints this thread can have: registers that were not given back are missed. */
static int free_registers()
{
	std::vector<Fd> taken;
	perf_event_attr attr = breakpoint(hit);

	for (;;) {
		Fd fd(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));

		if (!fd.valid())
			return taken.size();
		taken.push_back(std::move(fd));
	}
}

/* The kernel frees much of it later, after grace periods. */
static int report_leaks(const std::map<std::string, uint64_t> &before)
{
	constexpr int PATIENCE = 30;
	int leaks = 0;

	for (int seconds = 0; more(census(), before) && seconds < PATIENCE; seconds++)
		sleep(1);
	for (auto &[name, now] : census()) {
		auto was = before.find(name); /* always there: a cache does not go away */

		bool leaked = now > was->second;

		printf("%s%s: %lu, before %lu\n", leaked ? "leak: " : "", name.c_str(), now,
		       was->second);
		leaks += leaked;
	}
	return leaks;
}

/* What the leak detector of the kernel says, if it has one: it wants to see an object twice. */
static int report_kmemleak()
{
	static const char file[] = "/sys/kernel/debug/kmemleak";
	int leaks = 0;

	if (access(file, R_OK)) {
		puts("kmemleak: not in this kernel");
		return 0;
	}
	for (int scans = 0; scans < 2; scans++) {
		sleep(6);
		std::ofstream(file) << "scan" << std::endl;
	}

	std::ifstream found(file);

	for (std::string line; std::getline(found, line);) {
		leaks += line.starts_with("unreferenced object");
		printf("%s%s\n", line.starts_with("unref") ? "leak: " : "  ", line.c_str());
	}
	printf("kmemleak: %d\n", leaks);
	return leaks;
}

static uint64_t total_runs()
{
	uint64_t runs = 0;

	for (auto &filter : filters)
		runs += filter->runs();
	return runs;
}

/* A kind of call of which none succeeds tests nothing but the kernel's first question. */
static int report_kinds(bool links_too)
{
	int idle = 0;

	printf("%-18s %9s %9s\n", "call", "made", "succeeded");
	for (size_t i = 0; i < KINDS; i++) {
		uint64_t tried = counts->tried[i], succeeded = counts->errors[i][0];
		std::vector<std::pair<uint64_t, int>> failures;

		for (size_t err = 1; err < ERRNOS; err++)
			if (counts->errors[i][err])
				failures.push_back({ counts->errors[i][err], int(err) });
		std::sort(failures.rbegin(), failures.rend());
		printf("%-18s %9lu %9lu %3lu %%", kinds[i].name, tried, succeeded,
		       tried ? succeeded * 100 / tried : 0);
		if (failures.size() > 4)
			failures.resize(4);
		for (auto &[number, err] : failures)
			printf("  %lu %s", number,
			       strerrorname_np(err) ?: std::to_string(err).c_str());
		putchar('\n');
		if (!kinds[i].never && !succeeded && tried > 1000 &&
		    (links_too || !strstr(kinds[i].name, "link"))) {
			printf("idle: %s: none of %lu succeeded\n", kinds[i].name, tried);
			idle++;
		}
	}
	return idle;
}

static const char usage[] =
	"usage: perf_bpf_fuzz [--seed S] [--calls N]\n"
	"Makes N calls (1000 if not said) on perf events with BPF programs, in every order and "
	"with\n"
	"bad arguments, and looks for what they leave behind. It can kill a machine whose kernel\n"
	"has a defect: take a guest. What it did last is in the kernel log, with the seed to "
	"replay\n"
	"it: --seed S --calls 1 is that episode alone.\n"
	"Exit code 0: nothing found, 1: a leak, a hang, or calls that never succeed, 2: cannot "
	"begin.\n";

static uint64_t number(const char *option, const char *text)
{
	char *end = nullptr;
	uint64_t value = text ? strtoull(text, &end, 0) : 0;

	if (!text || !*text || *end || *text == '-') {
		fprintf(stderr, "perf_bpf_fuzz: %s wants a number (try --help)\n", option);
		exit(2);
	}
	return value;
}

static void to_kernel_log(const std::string &line)
{
	static Fd kmsg(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));

	if (kmsg.valid() && write(kmsg.get(), line.data(), line.size()) < 0)
		return; /* a log that takes no lines is no reason to stop */
}

static double seconds_now()
{
	timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

struct Running {
	pid_t pid;
	uint64_t seed;
	double begun;
	bool killed;
};

/* What the tasks of a process group are doing: of each the state, and where it is in the kernel. */
static void report_tasks(pid_t group)
{
	glob_t tasks = {};

	glob("/proc/[0-9]*/task/*", 0, nullptr, &tasks);
	for (size_t i = 0; i < tasks.gl_pathc; i++) {
		std::string task = tasks.gl_pathv[i];

		if (getpgid(atoi(task.c_str() + strlen("/proc/"))) != group)
			continue;
		for (auto file : { "/stat", "/stack" }) {
			std::ifstream lines(task + file);

			for (std::string line; std::getline(lines, line);)
				printf("  %s\n", line.c_str());
		}
	}
	globfree(&tasks);
}

/* Keeps episodes going until so many calls are made; returns how many did not end in time. */
static int run_episodes(uint64_t seed, uint64_t calls)
{
	constexpr double PATIENCE = 180; /* of a busy machine */
	std::vector<Running> running;
	uint64_t episodes = 0, shown = 0, killed_by[_NSIG] = {};
	const size_t at_once = 2 * usable_cpus().size();
	const double begun = seconds_now();
	int hung = 0;

	while (!running.empty() || counts->calls < calls) {
		if (running.size() < at_once &&
		    counts->calls + running.size() * 2 * CALLS_EACH < calls) {
			to_kernel_log("perf_bpf_filter: test fuzz:seed=" + std::to_string(seed) +
				      "\n");
			fflush(nullptr);
			pid_t pid = fork();

			if (pid < 0)
				setup_failed("fork", errno);
			if (!pid)
				episode(seed);
			setpgid(pid, pid);
			running.push_back({ pid, seed++, seconds_now(), false });
			episodes++;
			continue;
		}

		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		auto one = std::find_if(running.begin(), running.end(),
					[&](auto &r) { return r.pid == pid; });

		if (one != running.end()) {
			/* Its children are ours now. */
			kill(-pid, SIGKILL);
			if (WIFSIGNALED(status))
				killed_by[WTERMSIG(status)]++;
			if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
				hung++;
			running.erase(one);
		}
		if (pid <= 0)
			usleep(500);
		for (auto &r : running)
			if (seconds_now() - r.begun > PATIENCE * (1 + r.killed)) {
				printf("hang: seed %lu: %s\n", r.seed,
				       r.killed ? "cannot be killed" : "no end");
				report_tasks(r.pid);
				fflush(stdout);
				hung++;
				if (r.killed) {
					to_kernel_log("perf_bpf_fuzz: cannot be killed\n");
					std::ofstream("/proc/sysrq-trigger") << "t" << std::endl;
					return hung;
				}
				r.killed = true;
				kill(-r.pid, SIGKILL);
			}
		if (counts->calls * 100 / calls > shown && shown < 100) {
			shown = counts->calls * 100 / calls;
			printf("# %lu calls, %.0f s\n", counts->calls.load(),
			       seconds_now() - begun);
			fflush(stdout);
		}
	}
	while (waitpid(-1, nullptr, 0) > 0 || errno == EINTR)
		;
	printf("calls %lu, episodes %lu, hits %lu, runs of programs %lu, signals %lu, seconds "
	       "%.0f\n",
	       counts->calls.load(), episodes, counts->hits.load(), total_runs(),
	       counts->signals.load(), seconds_now() - begun);
	for (int sig = 1; sig < _NSIG; sig++)
		if (killed_by[sig])
			printf("episodes that ended by SIG%s: %lu\n", sigabbrev_np(sig) ?: "RT",
			       killed_by[sig]);
	return hung;
}

int main(int argc, char **argv)
{
	uint64_t seed = 1, calls = 1000;

	for (int i = 1; i < argc; i++) {
		std::string arg = argv[i];

		if (arg == "--hit") { /* what the children of an episode exec */
			hit(0);
			watched[0] = 1;
			return 0;
		} else if (arg == "--seed") {
			seed = number("--seed", argv[++i]);
		} else if (arg == "--calls") {
			calls = number("--calls", argv[++i]);
		} else if (arg == "-h" || arg == "--help") {
			fputs(usage, stdout);
			return 0;
		} else {
			fprintf(stderr, "perf_bpf_fuzz: unknown argument %s (try --help)\n",
				argv[i]);
			return 2;
		}
	}
	if (!calls)
		give_up("--calls 0", "that is nothing to do");
	if (getuid())
		give_up("cannot begin", "only root may do all that it tries");

	void *shared = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED)
		setup_failed("mmap", errno);
	counts = static_cast<Counts *>(shared);

	/* Programs on events of a whole CPU may send it to us. */
	signal(SIGUSR1, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	std::ifstream("/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id") >> tracepoint_id;
	read_kallsyms();
	const int registers = free_registers();

	if (!registers)
		unavailable("no hardware breakpoints");
	has_sigtrap();

	/* What has just been closed here is freed a little later. */
	auto before = census();

	for (sleep(1); census() != before; sleep(1))
		before = census();

	prepare_programs();

	const bool links_too = filters[0]->can_link();
	int found = run_episodes(seed, calls);

	found += report_kinds(links_too);
	filters.clear();
	if (int now = free_registers(); now != registers) {
		printf("leak: breakpoint registers: %d to be had, before %d\n", now, registers);
		found++;
	}
	found += report_leaks(before);
	found += report_kmemleak();
	printf("found: %d\n", found);
	return found ? 1 : 0;
}
