// SPDX-License-Identifier: GPL-2.0
#include "perf.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include <filter.skel.h>

perf_event_attr breakpoint(Access access, const volatile void *addr, size_t len)
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_BREAKPOINT;
	attr.size = sizeof(attr);
	attr.bp_type = static_cast<uint32_t>(access);
	attr.bp_addr = reinterpret_cast<uintptr_t>(addr);
	attr.bp_len = len;
	attr.sample_period = 1;
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	attr.disabled = 1;
	return attr;
}

perf_event_attr breakpoint(void (*function)(uint64_t))
{
#ifdef __x86_64__
	constexpr size_t len = sizeof(long);
#else
	constexpr size_t len = 4;
#endif
	return breakpoint(Access::EXECUTE, reinterpret_cast<const void *>(function), len);
}

static int open_event(perf_event_attr attr, pid_t pid, int cpu)
{
	return syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

Event::Event(const perf_event_attr &attr, pid_t pid, int cpu)
	: fd_(open_event(attr, pid, cpu))
{
	if (fd_.valid())
		return;

	int err = errno;

	if (attr.type == PERF_TYPE_BREAKPOINT &&
	    (err == ENOENT || err == EOPNOTSUPP || err == ENODEV))
		unavailable("no hardware breakpoint of this kind");
	if (attr.sigtrap && err == EINVAL) {
		perf_event_attr without = attr;

		without.sigtrap = 0;
		without.remove_on_exec = 0;
		if (Fd(open_event(without, pid, cpu)).valid())
			unavailable("the kernel has no attr.sigtrap (it came with 5.13)");
	}
	setup_failed("perf_event_open", err);
}

void Event::enable()
{
	if (ioctl(fd(), PERF_EVENT_IOC_ENABLE, 0))
		setup_failed("PERF_EVENT_IOC_ENABLE", errno);
}

void Event::disable()
{
	if (ioctl(fd(), PERF_EVENT_IOC_DISABLE, 0))
		setup_failed("PERF_EVENT_IOC_DISABLE", errno);
}

int Event::refresh(int n)
{
	return ioctl(fd(), PERF_EVENT_IOC_REFRESH, n) ? errno : 0;
}

void Event::must_refresh(int n)
{
	if (int err = refresh(n))
		setup_failed("PERF_EVENT_IOC_REFRESH", err);
}

int Event::attach(const Filter &filter)
{
	return ioctl(fd(), PERF_EVENT_IOC_SET_BPF, filter.prog_fd()) ? errno : 0;
}

void Event::must_attach(const Filter &filter)
{
	if (int err = attach(filter))
		setup_failed("PERF_EVENT_IOC_SET_BPF", err);
}

void Event::modify(perf_event_attr attr)
{
	if (ioctl(fd(), PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr))
		setup_failed("PERF_EVENT_IOC_MODIFY_ATTRIBUTES", errno);
}

uint64_t Event::count() const
{
	uint64_t value = 0;

	if (read(fd(), &value, sizeof(value)) != sizeof(value))
		setup_failed("read of the event's count", errno);
	return value;
}

static void set_async(int fd)
{
	if (fcntl(fd, F_SETFL, O_RDONLY | O_NONBLOCK | O_ASYNC))
		setup_failed("F_SETFL O_ASYNC", errno);
}

void Event::async()
{
	if (fcntl(fd(), F_SETOWN, getpid()))
		setup_failed("F_SETOWN", errno);
	set_async(fd());
}

void Event::async(int sig, pid_t tid)
{
	struct f_owner_ex owner = { F_OWNER_TID, tid };

	if (fcntl(fd(), F_SETOWN_EX, &owner))
		setup_failed("F_SETOWN_EX", errno);
	if (fcntl(fd(), F_SETSIG, sig))
		setup_failed("F_SETSIG", errno);
	set_async(fd());
}

Ring::Ring(const Event &event)
	: fd_(event.fd())
{
	size_t page = sysconf(_SC_PAGESIZE);

	data_size_ = DATA_PAGES * page;
	map_ = mmap(nullptr, page + data_size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
	if (map_ == MAP_FAILED)
		setup_failed("mmap of the ring buffer", errno);
}

Ring::~Ring()
{
	munmap(map_, sysconf(_SC_PAGESIZE) + data_size_);
}

void Ring::drain()
{
	auto *page = static_cast<perf_event_mmap_page *>(map_);
	const char *data = static_cast<char *>(map_) + sysconf(_SC_PAGESIZE);
	uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = page->data_tail;

	/* Records are multiples of 8 bytes, so a u64 never wraps though a record may. */
	auto word = [&](uint64_t offset) {
		uint64_t value;

		memcpy(&value, data + (offset & (data_size_ - 1)), sizeof(value));
		return value;
	};

	while (tail < head) {
		uint64_t first = word(tail);
		perf_event_header header;

		memcpy(&header, &first, sizeof(header));
		if (seen_count_ < MOST) {
			bool sample = header.type == PERF_RECORD_SAMPLE;

			/* header, IP, ADDR */
			seen_[seen_count_++] = { header.type, sample ? word(tail + 16) : 0 };
		}
		tail += header.size;
	}
	__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
}

uint64_t Ring::records(uint32_t type) const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		n += seen_[i].type == type;
	return n;
}

uint64_t Ring::samples_at(const volatile void *addr) const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		n += seen_[i].type == PERF_RECORD_SAMPLE &&
		     seen_[i].addr == reinterpret_cast<uintptr_t>(addr);
	return n;
}

bool Ring::poll_ready() const
{
	struct pollfd poller = { fd_, POLLIN, 0 };

	return poll(&poller, 1, 0) == 1 && poller.revents & POLLIN;
}

/* Written by the handler. si_code beyond the small ones (SI_KERNEL) shares slot 0. */
static constexpr int CODES = 8;
static volatile uint64_t caught[_NSIG][CODES];

static void on_signal(int sig, siginfo_t *info, void *)
{
	int code = info->si_code > 0 && info->si_code < CODES ? info->si_code : 0;

	caught[sig][code] = caught[sig][code] + 1;
}

Signals::Signals(std::initializer_list<int> sigs)
{
	struct sigaction action = {};

	action.sa_sigaction = on_signal;
	action.sa_flags = SA_SIGINFO | SA_RESTART;
	for (int sig : sigs) {
		for (auto &n : caught[sig])
			n = 0;
		if (used_ == MAX || sigaction(sig, &action, &old_[used_]))
			setup_failed("sigaction", errno);
		sig_[used_++] = sig;
	}
}

Signals::~Signals()
{
	while (used_--)
		sigaction(sig_[used_], &old_[used_], nullptr);
}

uint64_t Signals::count(int sig)
{
	uint64_t sum = 0;

	for (auto &n : caught[sig])
		sum += n;
	return sum;
}

uint64_t Signals::count(int sig, int code)
{
	return caught[sig][code];
}

pid_t Child::spawn()
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		setup_failed("fork", errno);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

int Child::wait()
{
	int status = 0;

	while (waitpid(pid_, &status, 0) < 0)
		if (errno != EINTR)
			setup_failed("waitpid", errno);
	if (!WIFSTOPPED(status))
		pid_ = -1;
	return status;
}

Child::~Child()
{
	if (pid_ <= 0)
		return;
	kill(pid_, SIGKILL);
	while (pid_ > 0)
		wait();
}

Filter::Filter(Program which)
{
	libbpf_set_print(nullptr);
	skel_ = filter__open();
	if (!skel_)
		setup_failed("bpf object", errno);

	/* Load that one alone: a kernel without kprobes has the perf_event programs all the same. */
	struct {
		Program id;
		bpf_program *prog;
	} programs[] = {
		{ Program::ON_OVERFLOW, skel_->progs.on_overflow },
		{ Program::ON_TRACEPOINT, skel_->progs.on_tracepoint },
		{ Program::ON_KPROBE, skel_->progs.on_kprobe },
	};

	for (auto &p : programs)
		bpf_program__set_autoload(p.prog, p.id == which);

	int err = filter__load(skel_);

	if (err)
		setup_failed("bpf() to load the program", -err);
	for (auto &p : programs)
		if (p.id == which)
			prog_fd_ = bpf_program__fd(p.prog);
	skel_->bss->task = getpid();
}

Filter::~Filter()
{
	filter__destroy(skel_);
}

void Filter::returns(uint32_t verdict)
{
	returns_if(verdict, FILTER_ALWAYS, 0);
}

void Filter::returns_if(uint32_t verdict, enum filter_condition what, uint64_t wanted)
{
	volatile auto *globals = skel_->bss;

	globals->verdict = verdict;
	globals->condition = what;
	globals->wanted = wanted;
}

uint64_t Filter::runs() const
{
	return __atomic_load_n(&skel_->bss->runs, __ATOMIC_RELAXED);
}

Fd Filter::link(const Event &event, int *err) const
{
	/* With perf links the bad descriptor is what is wrong; without, the attach type. */
	if (bpf_link_create(prog_fd_, -1, BPF_PERF_EVENT, nullptr) == -EINVAL)
		unavailable("the kernel has no BPF links for perf events (they came with 5.15)");

	int fd = bpf_link_create(prog_fd_, event.fd(), BPF_PERF_EVENT, nullptr);

	*err = fd < 0 ? -fd : 0;
	return fd < 0 ? Fd() : Fd(fd);
}

Fd Filter::link(const Event &event) const
{
	int err;
	Fd fd = link(event, &err);

	if (!fd.valid())
		setup_failed("bpf_link_create", err);
	return fd;
}
