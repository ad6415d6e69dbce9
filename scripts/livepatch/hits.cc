// SPDX-License-Identifier: GPL-2.0
// hits COMMAND...: hits breakpoints on every CPU while COMMAND loads and unloads the live patch,
// and checks what must hold with the live patch and without it: every hit is counted and runs its
// program; every accepted hit delivers one sample, and no rejected hit does; no hit delivers more
// than one SIGTRAP; REFRESH re-enables a breakpoint that has used up its limit. Breakpoints are
// hit in one thread per CPU, and in children that inherit the event. Events are opened before the
// live patch is loaded, while it is in force, and after it is unloaded. On each CPU another event
// counts context switches, so that each switch calls replaced functions.
//
// hits --disable FILE: writes 0 to FILE, the live patch's "enabled", while an exiting task is on no
// task list any more, but has not made its last context switch.
#include <atomic>
#include <bpf/bpf.h>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {
template <typename T> T must(T result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "hits: %s: %s\n", what, strerror(errno));
		exit(2);
	}
	return result;
}

// A program that counts its runs and returns @verdict.
struct Program {
	int map, fd;

	explicit Program(int verdict)
	{
		map = must(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, 4, 8, 1, nullptr),
			   "creating a map");
		const bpf_insn program[] = {
			{ BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0 }, // the key
			{ BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0 },
			{ BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4 },
			{ BPF_LD | BPF_DW | BPF_IMM, 1, BPF_PSEUDO_MAP_FD, 0, map },
			{ 0, 0, 0, 0, 0 },
			{ BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem },
			{ BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0 },
			{ BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 1 },
			{ BPF_STX | BPF_ATOMIC | BPF_DW, 0, 1, 0, BPF_ADD },
			{ BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, verdict },
			{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
		};
		fd = must(bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, nullptr, "GPL", program,
					std::size(program), nullptr),
			  "loading a program");
	}
	Program(const Program &) = delete;
	~Program()
	{
		close(fd);
		close(map);
	}
	uint64_t runs() const
	{
		uint32_t key = 0;
		uint64_t value = 0;
		must(bpf_map_lookup_elem(map, &key, &value), "reading a map");
		return value;
	}
};

// A breakpoint of the calling thread, with a program.
struct Event {
	static constexpr size_t PAGE = 4096, SIZE = 16 * PAGE;
	int fd;
	bool ring;
	perf_event_mmap_page *page = nullptr;
	uint64_t samples = 0, others = 0;

	Event(void (*function)(), const Program &program, bool sigtrap, bool inherit)
		: ring(!inherit)
	{
		perf_event_attr attr = {};
		attr.size = sizeof attr;
		attr.type = PERF_TYPE_BREAKPOINT;
		attr.bp_type = HW_BREAKPOINT_X;
		attr.bp_addr = uintptr_t(function);
		attr.bp_len = sizeof(long);
		attr.exclude_kernel = attr.exclude_hv = attr.disabled = 1;
		attr.sample_period = 1;
		attr.sample_type = PERF_SAMPLE_IP;
		attr.sigtrap = attr.remove_on_exec = sigtrap;
		attr.inherit = inherit;
		fd = must(syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC),
			  "opening a breakpoint");
		if (ring) {
			void *at = mmap(nullptr, PAGE + SIZE, PROT_READ | PROT_WRITE, MAP_SHARED,
					fd, 0);
			must(at == MAP_FAILED ? -1 : 0, "mapping the ring buffer");
			page = static_cast<perf_event_mmap_page *>(at);
		}
		must(ioctl(fd, PERF_EVENT_IOC_SET_BPF, program.fd), "attaching the program");
		must(ioctl(fd, PERF_EVENT_IOC_ENABLE, 0), "enabling the breakpoint");
	}
	Event(const Event &) = delete;
	~Event()
	{
		if (page)
			munmap(page, PAGE + SIZE);
		close(fd);
	}
	uint64_t count() const
	{
		uint64_t value;
		must(read(fd, &value, sizeof value), "reading the count");
		return value;
	}
	void drain()
	{
		uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE),
			 tail = page->data_tail;
		while (tail < head) {
			auto *record = (perf_event_header *)((char *)page + PAGE + tail % SIZE);
			(record->type == PERF_RECORD_SAMPLE ? samples : others)++;
			tail += record->size;
		}
		__atomic_store_n(&page->data_tail, tail, __ATOMIC_RELEASE);
	}
};

[[gnu::noinline, gnu::aligned(64)]] void rejected()
{
	asm volatile("nop");
}
[[gnu::noinline, gnu::aligned(64)]] void accepted()
{
	asm volatile("nop; nop");
}
[[gnu::noinline, gnu::aligned(64)]] void inherited()
{
	asm volatile("nop; nop; nop");
}
[[gnu::noinline, gnu::aligned(64)]] void limited()
{
	asm volatile("nop; nop; nop; nop");
}

// From 6.17 on the kernel's own code does not start a breakpoint again after its limit (0301).
bool refreshes()
{
	utsname kernel;
	int major = 0, minor = 0;
	uname(&kernel);
	sscanf(kernel.release, "%d.%d", &major, &minor);
	return major < 6 || (major == 6 && minor < 17);
}

thread_local volatile unsigned traps;
std::atomic<bool> done, wrong;

void expect(uint64_t actual, uint64_t expected, int cpu, const char *what)
{
	if (actual == expected)
		return;
	printf("hits: CPU %d: %s: expected %lu, got %lu\n", cpu, what, expected, actual);
	wrong = true;
}

// Breakpoints of the calling thread with programs, and the numbers of hits that they must count.
struct Attached {
	Program no{ 0 }, yes{ 1 }, for_children{ 1 }, at_limit{ 1 };
	Event reject{ rejected, no, true, false }, accept{ accepted, yes, false, false };
	Event inherit{ inherited, for_children, false, true };
	Event limit{ limited, at_limit, false, false };
	uint64_t rounds = 0, calls = 0, trapped = 0, double_traps = 0, in_children = 0;

	void hit()
	{
		constexpr int BATCH = 400, CHILD = 50;

		for (int i = 0; i < BATCH; i++, calls++) {
			unsigned before = traps;
			rejected();
			accepted();
			unsigned now = traps - before;
			trapped += now;
			double_traps += now > 1;
		}
		reject.drain();
		accept.drain();
		must(ioctl(limit.fd, PERF_EVENT_IOC_REFRESH, 1), "raising the limit");
		limited();
		limited(); // above the limit
		limit.drain();
		// Share the file descriptors: a copy would keep events open that other threads
		// close.
		pid_t child = must(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0), "clone");
		if (!child) {
			for (int i = 0; i < CHILD; i++)
				inherited();
			_exit(0);
		}
		waitpid(child, nullptr, 0);
		in_children += CHILD;
		rounds++;
	}
	void compare(int cpu) const
	{
		expect(reject.count(), calls, cpu, "rejected hits counted");
		expect(no.runs(), calls, cpu, "runs of the program that rejects");
		expect(reject.samples + reject.others, 0, cpu, "records of rejected hits");
		expect(double_traps, 0, cpu, "hits with more than one SIGTRAP");
		expect(accept.count(), calls, cpu, "accepted hits counted");
		expect(yes.runs(), calls, cpu, "runs of the program that accepts");
		expect(accept.samples, calls, cpu, "samples of accepted hits");
		expect(accept.others, 0, cpu, "other records");
		if (refreshes()) {
			expect(limit.count(), rounds, cpu, "hits up to the limit counted");
			expect(limit.samples, rounds, cpu, "samples of hits up to the limit");
		}
		expect(inherit.count(), in_children, cpu, "hits of children counted");
		expect(for_children.runs(), in_children, cpu, "runs in children");
	}
};

void run_on(int cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	must(sched_setaffinity(0, sizeof only, &only), "sched_setaffinity");
}

void count_switches(int cpu)
{
	perf_event_attr attr = {};
	attr.size = sizeof attr;
	attr.type = PERF_TYPE_SOFTWARE;
	attr.config = PERF_COUNT_SW_CONTEXT_SWITCHES;
	must(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC),
	     "opening an event for context switches");
}

// A real-time parent on the CPU of its child preempts the exiting child and reaps it before the
// child's last context switch.
int disable(const char *file)
{
	const int enabled = must(open(file, O_WRONLY | O_CLOEXEC), file);
	const sched_param high = { .sched_priority = 50 };
	run_on(0);
	must(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &high), "sched_setscheduler");
	pid_t child = must(fork(), "fork");
	if (!child)
		_exit(0);
	waitpid(child, nullptr, 0);
	must(write(enabled, "0", 1), file);
	return 0;
}

// On CPUs with even numbers, the events exist as long as COMMAND runs. On the others they are
// opened and closed repeatedly, so some are opened while the live patch is loaded and closed after
// it is unloaded.
void hit_on(int cpu)
{
	constexpr uint64_t ROUNDS = 5;
	run_on(cpu);

	uint64_t attached = 0, calls = 0, trapped = 0, in_children = 0;
	while (!done) {
		Attached now;
		do
			now.hit();
		while (!done && (cpu % 2 == 0 || now.rounds < ROUNDS));
		now.compare(cpu);
		attached++;
		calls += now.calls;
		trapped += now.trapped;
		in_children += now.in_children;
	}
	printf("hits: CPU %d: %lu times attached, %lu calls, %lu of them with a SIGTRAP, %lu in "
	       "children\n",
	       cpu, attached, calls, trapped, in_children);
}
} // namespace

int main(int count, char **arguments)
{
	if (count == 3 && !strcmp(arguments[1], "--disable"))
		return disable(arguments[2]);
	if (count < 2 || arguments[1][0] == '-') {
		fprintf(stderr, "usage: hits COMMAND... | hits --disable FILE\n");
		return 2;
	}
	struct sigaction action = {};
	action.sa_handler = [](int) { traps = traps + 1; };
	sigaction(SIGTRAP, &action, nullptr);
	pid_t command = must(fork(), "fork");
	if (!command) {
		execvp(arguments[1], arguments + 1);
		must(-1, arguments[1]);
	}
	std::vector<std::thread> threads;
	for (int cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++) {
		count_switches(cpu);
		threads.emplace_back(hit_on, cpu);
	}
	int status;
	waitpid(command, &status, 0);
	done = true;
	for (std::thread &thread : threads)
		thread.join();
	if (status)
		printf("hits: %s: failed with wait status %#x\n", arguments[1], status);
	return wrong || status;
}
