// SPDX-License-Identifier: GPL-2.0
#include "lib/perf.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

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

perf_event_attr software(uint64_t config)
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_SOFTWARE;
	attr.size = sizeof(attr);
	attr.config = config;
	attr.disabled = 1;
	return attr;
}

static int open_event(perf_event_attr attr, pid_t pid, int cpu, int group)
{
	return syscall(SYS_perf_event_open, &attr, pid, cpu, group, PERF_FLAG_FD_CLOEXEC);
}

/* The 64 bit fields of one bit each that follow attr.read_format. */
static uint64_t flags_of(const perf_event_attr &attr)
{
	uint64_t flags;

	memcpy(&flags, &attr.read_format + 1, sizeof(flags));
	return flags;
}

static void set_flags(perf_event_attr &attr, uint64_t flags)
{
	memcpy(&attr.read_format + 1, &flags, sizeof(flags));
}

static constexpr uint64_t DEFER = 3ull << 38; /* defer_callchain, defer_output */

void defer_callchain(perf_event_attr &attr)
{
	set_flags(attr, flags_of(attr) | DEFER);
}

/* What an old kernel refuses, and the least that asks for it. */
static constexpr struct Newer {
	bool (*asked)(const perf_event_attr &attr);
	void (*ask)(perf_event_attr &attr);
	const char *reason;
} newer[] = {
	{ [](auto &attr) -> bool { return attr.sigtrap; },
	  [](auto &attr) { attr.sigtrap = attr.remove_on_exec = 1; },
	  "the kernel has no attr.sigtrap (it came with 5.13)" },
	{ [](auto &attr) -> bool { return attr.remove_on_exec; },
	  [](auto &attr) { attr.remove_on_exec = 1; },
	  "the kernel has no attr.remove_on_exec (it came with 5.13)" },
	{ [](auto &attr) -> bool { return attr.inherit_thread; },
	  [](auto &attr) { attr.inherit = attr.inherit_thread = 1; },
	  "the kernel has no attr.inherit_thread (it came with 5.13)" },
	{ [](auto &attr) -> bool { return flags_of(attr) & DEFER; },
	  [](auto &attr) { set_flags(attr, flags_of(attr) | DEFER); },
	  "the kernel has no attr.defer_callchain (it came after 6.18)" },
	{ [](auto &attr) -> bool { return attr.read_format & PERF_FORMAT_LOST; },
	  [](auto &attr) { attr.read_format = PERF_FORMAT_LOST; },
	  "the kernel has no PERF_FORMAT_LOST (it came with 6.0)" },
};

/*
 * Whether the kernel lacks it even in an event that is nothing else, so that what is wrong with
 * the event of a test is not taken for an old kernel.
 */
static bool lacks(const Newer &feature)
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_SOFTWARE;
	attr.size = sizeof(attr);
	attr.config = PERF_COUNT_SW_DUMMY;
	attr.exclude_kernel = 1;
	attr.exclude_hv = 1;
	attr.disabled = 1;
	if (!Fd(open_event(attr, 0, -1, -1)).valid())
		return false;
	feature.ask(attr);
	return !Fd(open_event(attr, 0, -1, -1)).valid() && errno == EINVAL;
}

bool has_sigtrap()
{
	return !lacks(newer[0]);
}

bool kernel_before(int major, int minor)
{
	utsname kernel;
	int is_major = 0, is_minor = 0;

	uname(&kernel);
	sscanf(kernel.release, "%d.%d", &is_major, &is_minor);
	return is_major < major || (is_major == major && is_minor < minor);
}

Event::Event(const perf_event_attr &attr, pid_t pid, int cpu, const Event *leader)
	: fd_(open_event(attr, pid, cpu, leader ? leader->fd() : -1))
{
	if (fd_.valid())
		return;

	int err = errno;
	bool absent = err == ENOENT || err == EOPNOTSUPP || err == ENODEV;

	if (attr.type == PERF_TYPE_BREAKPOINT && absent)
		unavailable("no hardware breakpoint of this kind");
	if (attr.type == PERF_TYPE_HARDWARE && absent)
		unavailable("no hardware counter of this kind");
	/* E2BIG: a field that it does not know is not 0. */
	for (auto &feature : newer)
		if ((err == EINVAL || err == E2BIG) && feature.asked(attr) && lacks(feature))
			unavailable(feature.reason);
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

void Event::set_period(uint64_t period)
{
	if (ioctl(fd(), PERF_EVENT_IOC_PERIOD, &period))
		setup_failed("PERF_EVENT_IOC_PERIOD", errno);
}

void Event::write_to(const Event &other)
{
	if (ioctl(fd(), PERF_EVENT_IOC_SET_OUTPUT, other.fd()))
		setup_failed("PERF_EVENT_IOC_SET_OUTPUT", errno);
}

std::vector<uint64_t> Event::read_words() const
{
	uint64_t words[64];
	ssize_t bytes = read(fd(), words, sizeof(words));

	if (bytes < 0)
		setup_failed("read of the event", errno);
	return { words, words + bytes / sizeof(words[0]) };
}

uint64_t Event::id() const
{
	uint64_t id = 0;

	if (ioctl(fd(), PERF_EVENT_IOC_ID, &id))
		setup_failed("PERF_EVENT_IOC_ID", errno);
	return id;
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
	async(sig, F_OWNER_TID, tid);
}

void Event::async(int sig, int owner_type, pid_t owner)
{
	struct f_owner_ex ex = { static_cast<__pid_type>(owner_type), owner };

	if (fcntl(fd(), F_SETOWN_EX, &ex))
		setup_failed("F_SETOWN_EX", errno);
	if (fcntl(fd(), F_SETSIG, sig))
		setup_failed("F_SETSIG", errno);
	set_async(fd());
}

Ring::Ring(const Event &event, Mode mode, size_t data_pages)
	: mode_(mode)
	, fd_(event.fd())
{
	size_t page = sysconf(_SC_PAGESIZE);
	int access = mode == Mode::NORMAL ? PROT_READ | PROT_WRITE : PROT_READ;

	data_size_ = data_pages * page;
	map_ = mmap(nullptr, page + data_size_, access, MAP_SHARED, fd_, 0);
	if (map_ == MAP_FAILED)
		setup_failed("mmap of the ring buffer", errno);
}

Ring::~Ring()
{
	munmap(map_, sysconf(_SC_PAGESIZE) + data_size_);
}

/* Calls @record with the header of each record, and with what gives its words. */
template <typename Record> void Ring::consume(Record record)
{
	auto *page = static_cast<perf_event_mmap_page *>(map_);
	const char *data = static_cast<char *>(map_) + sysconf(_SC_PAGESIZE);
	uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	uint64_t at = page->data_tail, end = head;

	/* Written backward, the newest record begins at the head, and zeroes follow the oldest. */
	if (mode_ == Mode::OVERWRITE) {
		seen_count_ = 0;
		at = head;
		end = head + data_size_;
	}

	/* Records are multiples of 8 bytes, so a u64 never wraps though a record may. */
	auto word = [&](size_t n) {
		uint64_t value;

		memcpy(&value, data + ((at + n * sizeof(value)) & (data_size_ - 1)), sizeof(value));
		return value;
	};

	while (at != end) {
		uint64_t first = word(0);
		perf_event_header header;

		memcpy(&header, &first, sizeof(header));
		/* No record, or the oldest one, which the newest has partly overwritten. */
		if (!header.size || header.size > end - at)
			break;
		record(header, word);
		at += header.size;
	}
	if (mode_ == Mode::NORMAL)
		__atomic_store_n(&page->data_tail, at, __ATOMIC_RELEASE);
}

void Ring::drain()
{
	consume([this](const perf_event_header &header, auto word) {
		/* A sample: header, IP, ADDR. PERF_RECORD_LOST: header, id, number. */
		if (seen_count_ < MOST)
			seen_[seen_count_++] = { header.type, word(2) };
	});
}

std::vector<std::vector<uint64_t>> Ring::take_samples()
{
	std::vector<std::vector<uint64_t>> samples;

	consume([&](const perf_event_header &header, auto word) {
		if (header.type != PERF_RECORD_SAMPLE)
			return;
		samples.emplace_back();
		for (size_t n = 0; n < header.size / sizeof(uint64_t); n++)
			samples.back().push_back(word(n));
	});
	return samples;
}

uint64_t Ring::records(uint32_t type) const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		n += seen_[i].type == type;
	return n;
}

uint64_t Ring::lost() const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		if (seen_[i].type == PERF_RECORD_LOST)
			n += seen_[i].third;
	return n;
}

uint64_t Ring::samples_at(const volatile void *addr) const
{
	uint64_t n = 0;

	for (size_t i = 0; i < seen_count_; i++)
		n += seen_[i].type == PERF_RECORD_SAMPLE &&
		     seen_[i].third == reinterpret_cast<uintptr_t>(addr);
	return n;
}

uint64_t Ring::sum() const
{
	uint64_t sum = 0;

	for (size_t i = 0; i < seen_count_; i++)
		sum += seen_[i].type == PERF_RECORD_SAMPLE ? seen_[i].third : 0;
	return sum;
}

bool Ring::poll_ready() const
{
	struct pollfd poller = { fd_, POLLIN, 0 };

	return poll(&poller, 1, 0) == 1 && poller.revents & POLLIN;
}

/* Written by the handler, in any thread. si_code beyond the small ones shares slot 0. */
static constexpr int CODES = 8;
static uint64_t caught[_NSIG][CODES];
static siginfo_t last_caught[_NSIG];

static void on_signal(int sig, siginfo_t *info, void *)
{
	int code = info->si_code > 0 && info->si_code < CODES ? info->si_code : 0;

	last_caught[sig] = *info;
	__atomic_fetch_add(&caught[sig][code], 1, __ATOMIC_RELAXED);
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

	for (int code = 0; code < CODES; code++)
		sum += count(sig, code);
	return sum;
}

uint64_t Signals::count(int sig, int code)
{
	return __atomic_load_n(&caught[sig][code], __ATOMIC_RELAXED);
}

siginfo_t Signals::last(int sig)
{
	std::atomic_signal_fence(std::memory_order_acquire);
	return last_caught[sig];
}

TrapInfo trap_info(const siginfo_t &info)
{
	TrapInfo trap;
	const char *fields = reinterpret_cast<const char *>(&info.si_addr);

	static_assert(sizeof(trap) == 24, "addr, data, type and flags, as in siginfo_t");
	memcpy(&trap, fields, sizeof(trap));
	return trap;
}

std::vector<int> usable_cpus()
{
	cpu_set_t set;
	std::vector<int> cpus;

	if (sched_getaffinity(0, sizeof(set), &set))
		setup_failed("sched_getaffinity", errno);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			cpus.push_back(cpu);
	return cpus;
}

uint64_t kernel_address_of(const std::string &function)
{
	std::ifstream symbols("/proc/kallsyms");
	std::string type, name;

	for (uint64_t address; symbols >> std::hex >> address >> type >> name;
	     std::getline(symbols, type))
		if (name == function)
			return address;
	return 0;
}

void *shared_with_children(size_t size)
{
	void *at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		setup_failed("mmap", errno);
	return at;
}

void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		setup_failed("sched_setaffinity", errno);
}

void be_rescheduled()
{
	rusage before, now;

	getrusage(RUSAGE_THREAD, &before);
	do {
		usleep(1000);
		getrusage(RUSAGE_THREAD, &now);
	} while (now.ru_nvcsw == before.ru_nvcsw);
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

Sysctl::Sysctl(const char *name)
	: file_(std::string("/proc/sys/") + name)
{
	if (!(std::ifstream(file_) >> old_) || !set(old_))
		unavailable(("no permission to read and set " + file_).c_str());
	if (pipe2(ends_, O_CLOEXEC))
		setup_failed("pipe2", errno);

	guard_ = fork();
	if (guard_ < 0)
		setup_failed("fork", errno);
	if (!guard_)
		guard();
	close(ends_[0]);
}

Sysctl::~Sysctl()
{
	set(old_);
	if (write(ends_[1], "", 1) == 1)
		waitpid(guard_, nullptr, 0);
	close(ends_[1]);
}

bool Sysctl::set(int value)
{
	std::ofstream file(file_);

	file << value << std::flush;
	return file.good();
}

void Sysctl::guard()
{
	char byte;

	setsid();
	close(ends_[1]);
	if (!read(ends_[0], &byte, 1))
		set(old_);
	_exit(0);
}

SlowSampling::SlowSampling()
	: Sysctl("kernel/perf_event_max_sample_rate")
{
	if (!set(1000))
		unavailable("no way to set kernel.perf_event_max_sample_rate");
}

long milliseconds_now()
{
	timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void spin(long milliseconds)
{
	for (long end = milliseconds_now() + milliseconds; milliseconds_now() < end;)
		for (volatile int i = 0; i < 100000;)
			i = i + 1;
}

Filter::Filter(Program which, const Filter *target)
{
	libbpf_set_print(nullptr);
	skel_ = filter__open();
	if (!skel_)
		setup_failed("bpf object", errno);

	/* Load that one alone: a kernel without kprobes has the perf_event programs all the same.
	 */
	struct {
		Program id;
		bpf_program *prog;
	} programs[] = {
		{ Program::ON_OVERFLOW, skel_->progs.on_overflow },
		{ Program::ON_TRACEPOINT, skel_->progs.on_tracepoint },
		{ Program::ON_KPROBE, skel_->progs.on_kprobe },
		{ Program::ON_RAW_TRACEPOINT, skel_->progs.on_raw_tracepoint },
		{ Program::LOOKS, skel_->progs.looks },
		{ Program::READS_COOKIE, skel_->progs.reads_cookie },
		{ Program::CHECKS_COOKIE, skel_->progs.checks_cookie },
		{ Program::GETS_STACK, skel_->progs.gets_stack },
		{ Program::FILLS_RINGBUF, skel_->progs.fills_ringbuf },
		{ Program::TAIL_CALLS, skel_->progs.tail_calls },
		{ Program::SENDS_SIGNAL, skel_->progs.sends_signal },
		{ Program::READS_SAMPLE, skel_->progs.reads_sample },
		{ Program::CALLS_REPLACEABLE, skel_->progs.calls_replaceable },
		{ Program::REPLACES, skel_->progs.replaces },
		{ Program::WORKS, skel_->progs.works },
	};
	bool tail_calls = which == Program::TAIL_CALLS;

	for (auto &p : programs)
		bpf_program__set_autoload(p.prog, p.id == which);
	if (tail_calls)
		bpf_program__set_autoload(skel_->progs.on_overflow, true);
	bpf_map__set_autocreate(skel_->maps.targets, tail_calls);
	bpf_map__set_autocreate(skel_->maps.values, which == Program::FILLS_RINGBUF);
	bpf_map__set_autocreate(skel_->maps.blocks, which == Program::WORKS);

	if ((which == Program::READS_COOKIE || which == Program::CHECKS_COOKIE) &&
	    !libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_get_attach_cookie, nullptr))
		unavailable("the kernel has no bpf_get_attach_cookie (it came with 5.15)");

	if ((which == Program::CALLS_REPLACEABLE || which == Program::REPLACES) &&
	    access("/sys/kernel/btf/vmlinux", F_OK))
		unavailable("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)");

	int err = target ? bpf_program__set_attach_target(skel_->progs.replaces, target->prog_fd_,
							  "can_be_replaced") :
			   0;

	if (!err)
		err = filter__load(skel_);
	if (target && err == -EPERM)
		unavailable("a program that replaces another one wants CAP_NET_ADMIN");
	if (err)
		setup_failed("bpf() to load the program", -err);
	for (auto &p : programs)
		if (p.id == which)
			prog_fd_ = bpf_program__fd(p.prog);
	if (tail_calls)
		set_callee(bpf_program__fd(skel_->progs.on_overflow));
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

void Filter::checks(uint64_t cookie, uint64_t ns)
{
	volatile auto *globals = skel_->bss;

	globals->wanted = cookie;
	globals->dawdle = ns;
}

void Filter::set_callee(int fd)
{
	uint32_t slot = 0;

	if (int err = bpf_map_update_elem(bpf_map__fd(skel_->maps.targets), &slot, &fd, 0))
		setup_failed("bpf() to set the tail call", -err);
}

void Filter::tail_calls(const Filter &callee)
{
	set_callee(callee.prog_fd_);
}

Fd Filter::replace()
{
	int fd = bpf_link_create(prog_fd_, 0, BPF_TRACE_FENTRY, nullptr);

	if (fd < 0)
		setup_failed("bpf_link_create to replace a function", -fd);
	return Fd(fd);
}

void Filter::works(const void *block, uint64_t times)
{
	volatile auto *globals = skel_->bss;

	globals->wanted = reinterpret_cast<uintptr_t>(block);
	globals->work = times;
}

uint64_t Filter::runs() const
{
	return __atomic_load_n(&skel_->bss->runs, __ATOMIC_RELAXED);
}

filter_look Filter::look() const
{
	filter_look look;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	memcpy(&look, &skel_->bss->look, sizeof(look));
	return look;
}

std::vector<uint64_t> Filter::take() const
{
	std::vector<uint64_t> values;
	auto on_value = [](void *values, void *data, size_t) {
		static_cast<std::vector<uint64_t> *>(values)->push_back(
			*static_cast<uint64_t *>(data));
		return 0;
	};
	ring_buffer *reader =
		ring_buffer__new(bpf_map__fd(skel_->maps.values), on_value, &values, nullptr);

	if (!reader)
		setup_failed("ring_buffer__new", errno);
	ring_buffer__consume(reader);
	ring_buffer__free(reader);
	return values;
}

bool Filter::can_link() const
{
	/* With perf links the bad descriptor is what is wrong; without, the attach type. */
	return bpf_link_create(prog_fd_, -1, BPF_PERF_EVENT, nullptr) != -EINVAL;
}

Fd Filter::link(const Event &event, int *err, uint64_t cookie) const
{
	if (!can_link())
		unavailable("the kernel has no BPF links for perf events (they came with 5.15)");

	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event = { .bpf_cookie = cookie });
	int fd = bpf_link_create(prog_fd_, event.fd(), BPF_PERF_EVENT, &opts);

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
