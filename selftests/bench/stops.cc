// SPDX-License-Identifier: GPL-2.0
/*
 * What one would use instead: the ways to be stopped at the one arrival at an address that
 * matters, all in the same loop and under the same condition. Each must stop there, and nowhere
 * else, or there is no figure.
 */
#include "bench/bench.h"

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <fcntl.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "lib/arch.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/effects.h"
#include "lib/fail.h"
#include "lib/ptrace.h"
#include "lib/ring.h"
#include "lib/signals.h"

static constexpr int UNAVAILABLE = 4; /* exit code of a child: run->why */
static constexpr unsigned DEADLINE = 300; /* seconds, for a child */

Run *const run = &shared_with_children<Run>();

static bool is_child;

void unavailable(const char *reason)
{
	if (!is_child)
		give_up(reason);
	snprintf(run->why, sizeof(run->why), "%s", reason);
	_exit(UNAVAILABLE);
}

bool run_in_child(uint64_t arrivals, uint64_t wanted, void (*body)(int), int argument)
{
	memset(static_cast<void *>(run), 0, sizeof(*run));
	run->arrivals = arrivals;
	run->wanted = wanted;

	int status = Child([=] {
			     is_child = true;
			     alarm(DEADLINE);
			     body(argument);
			     return 0;
		     }).wait();

	if (WIFEXITED(status) && WEXITSTATUS(status) == UNAVAILABLE)
		return false;
	if (WIFEXITED(status) && WEXITSTATUS(status))
		_exit(2); /* it has said why */
	expect("as wait status of what was to measure it", status, 0);
	return true;
}

/* On a page of its own, which has nothing else to protect. */
static constexpr size_t PAGE = 4096;
alignas(PAGE) static volatile uint64_t page[PAGE / sizeof(uint64_t)];
static volatile uint64_t &word = page[0];

/* What clang lacks: the former in every version, the latter before 15. */
#if __has_attribute(optimize)
#define FRAME_POINTER __attribute__((optimize("no-omit-frame-pointer")))
#else
#define FRAME_POINTER
#endif
#if __has_attribute(zero_call_used_regs)
#define CLEARS_REGISTERS __attribute__((zero_call_used_regs("all-gpr")))
#else
#define CLEARS_REGISTERS
#endif

/* With the frame pointer it begins as most functions do, with a push. */
KEPT_APART FRAME_POINTER void arrive(uint64_t nth)
{
	word = nth;
}

/* Leaves no trace of the time in the registers, which some compare. */
KEPT_APART CLEARS_REGISTERS static void stamp(uint64_t *at)
{
	*at = now();
}

KEPT_APART void loop(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		auto &taken = run->taken[i % Run::SLOTS];

		stamp(&taken.before);
		arrive(i);
		stamp(&taken.after);
	}
}

static pid_t supervised;

/*
 * Of this process and of the one that it supervises, which take turns: a clock that other work on
 * the machine does not touch.
 */
static uint64_t cpu_time()
{
	clockid_t other;
	uint64_t sum = nanoseconds_now(CLOCK_PROCESS_CPUTIME_ID);

	if (supervised && !clock_getcpuclockid(supervised, &other))
		sum += nanoseconds_now(other);
	return sum;
}

/* Says whoever has stopped it. */
static void stopped(uint64_t nth)
{
	run->stopped = cpu_time();
	run->stopped_at = nth;
	run->stops++;
}

double ticks_of_one()
{
	std::vector<double> ticks;

	for (uint64_t i = 0; i < std::min(run->arrivals, Run::SLOTS); i++)
		ticks.push_back(run->taken[i].after - run->taken[i].before);
	return spread(ticks).median;
}

/* --- Ways in which the task that arrives decides, or is told. */

static uint64_t first_argument(void *context)
{
#ifdef __x86_64__
	return static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RDI];
#else
	return static_cast<ucontext_t *>(context)->uc_mcontext.regs[0];
#endif
}

static void is_told(int, siginfo_t *, void *context)
{
	stopped(first_argument(context));
}

static void decides(int, siginfo_t *, void *context)
{
	uint64_t nth = first_argument(context);

	if (nth == run->wanted)
		stopped(nth);
}

static void on_signal(int sig, void (*handler)(int, siginfo_t *, void *))
{
	struct sigaction action = {};

	action.sa_sigaction = handler;
	action.sa_flags = SA_SIGINFO;
	if (sigaction(sig, &action, nullptr))
		setup_failed("sigaction", errno);
}

static void loop_with(Event &event)
{
	event.enable();
	loop();
	event.disable();
	expect("hits counted", event.count(), run->arrivals);
}

static void bare(int)
{
	run->began = cpu_time();
	loop();
	run->stopped = cpu_time();
}

static void counting(int)
{
	perf_event_attr attr = breakpoint(arrive);

	attr.sample_period = attr.wakeup_events = attr.sample_type = 0;

	Event event(attr);

	loop_with(event);
}

static void sampling(int)
{
	Event event(breakpoint(arrive));

	loop_with(event);
}

static void program_ring(int)
{
	perf_event_attr attr = breakpoint(arrive);
	Bench bench("matches");

	/* The count in the place of the address, from which one sees where the sample is from. */
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_READ;

	Event event(attr);
	Ring ring(event);

	bench.globals()->wanted = run->wanted;
	event.must_attach(bench);
	loop_with(event);
	ring.drain();
	run->stops = ring.samples();
	if (ring.samples_at(reinterpret_cast<void *>(run->wanted + 1)))
		run->stopped_at = run->wanted;
}

/* The breakpoint of @attr with a signal to oneself. */
static void signal_to_self(perf_event_attr attr, const char *program)
{
	const int sig = attr.sigtrap ? SIGTRAP : SETSIG;

	if (hits_again())
		unavailable(HITS_AGAIN);

	Event event(attr);

	on_signal(sig, program ? is_told : decides);
	if (!attr.sigtrap)
		event.async(sig, gettid());
	if (!program) {
		loop_with(event);
		return;
	}

	Bench bench(program);

	bench.globals()->wanted = run->wanted;
	event.must_attach(bench);
	loop_with(event);
}

static void program_async(int)
{
	signal_to_self(breakpoint(arrive), "matches");
}

static void program_sigtrap(int)
{
	signal_to_self(with_sigtrap(breakpoint(arrive)), "matches");
}

static void program_data(int)
{
	if (STOPS_BEFORE_ACCESS)
		unavailable("a watchpoint of this architecture hits before the write");
	signal_to_self(breakpoint(Access::WRITE, &word, sizeof(word)), "watches");
}

static void handler_sigio(int)
{
	signal_to_self(breakpoint(arrive), nullptr);
}

static void handler_sigtrap(int)
{
	signal_to_self(with_sigtrap(breakpoint(arrive)), nullptr);
}

static void uprobe(int)
{
	if (access("/sys/bus/event_source/devices/uprobe", F_OK))
		unavailable("no uprobe events (CONFIG_UPROBE_EVENTS)");

	Bench bench("signals");

	LIBBPF_OPTS(bpf_uprobe_opts, opts, .func_name = "arrive");

	bpf_link *link =
		bpf_program__attach_uprobe_opts(bench.program(), 0, "/proc/self/exe", 0, &opts);

	if (!link)
		setup_failed("attaching to the uprobe", errno);
	on_signal(SIGUSR1, is_told);
	bench.globals()->wanted = run->wanted;
	loop();
	bpf_link__destroy(link);
}

#ifdef __x86_64__
static constexpr greg_t TRAP_FLAG = 0x100;

static void protect(int access)
{
	if (mprotect(const_cast<uint64_t *>(&word), PAGE, access))
		setup_failed("mprotect", errno);
}

/* The write is let through, one step long. */
static void on_fault(int, siginfo_t *, void *context)
{
	protect(PROT_READ | PROT_WRITE);
	static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_step(int, siginfo_t *, void *context)
{
	if (word == run->wanted)
		stopped(word);
	protect(PROT_READ);
	static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static void protection(int)
{
	on_signal(SIGSEGV, on_fault);
	on_signal(SIGTRAP, on_step);
	protect(PROT_READ);
	loop();
	protect(PROT_READ | PROT_WRITE);
}

/* --- Ways in which another process decides, or is told. */

class Tracee {
public:
	/* Each time it is let go on it does the loop, and stops again. */
	Tracee()
		: child_([] {
			for (stop_for_tracer();; raise(SIGSTOP))
				loop();
			return 0;
		})
	{
		expect("as the signal that stopped it before the loop", wait(), SIGSTOP);
		supervised = pid();
	}

	pid_t pid() const { return child_.pid(); }
	void resume(__ptrace_request how = PTRACE_CONT) { ask(how, 0, 0); }
	/* The signal it has stopped with. */
	int wait()
	{
		int status = child_.wait();

		return WIFSTOPPED(status) ? WSTOPSIG(status) : -1;
	}
	/* Whether it has been stopped by SIGTRAP; else it has come to the end of the loop. */
	bool trapped()
	{
		int sig = wait();

		if (sig != SIGTRAP)
			expect("as the signal that stopped it after the loop", sig, SIGSTOP);
		return sig == SIGTRAP;
	}
	void step()
	{
		resume(PTRACE_SINGLESTEP);
		expect("as the signal after one step", wait(), SIGTRAP);
	}
	user_regs_struct registers() const
	{
		user_regs_struct registers;

		ask(PTRACE_GETREGS, 0, reinterpret_cast<uintptr_t>(&registers));
		return registers;
	}
	void set_registers(const user_regs_struct &registers)
	{
		ask(PTRACE_SETREGS, 0, reinterpret_cast<uintptr_t>(&registers));
	}
	void write_code(uint64_t code)
	{
		ask(PTRACE_POKETEXT, reinterpret_cast<uintptr_t>(arrive), code);
	}
	void set_debug_register(int n, uint64_t value)
	{
		ask(PTRACE_POKEUSER, offsetof(user, u_debugreg) + n * sizeof(long), value);
	}

private:
	void ask(__ptrace_request what, uint64_t address, uint64_t data) const
	{
		if (ptrace(what, pid(), address, data))
			setup_failed("ptrace", errno);
	}

	Child child_;
};

static const uint64_t address = reinterpret_cast<uintptr_t>(arrive);

/* As everybody does it: out with the breakpoint, one step, in with it. */
static void ptrace_int3(int)
{
	Tracee tracee;
	uint64_t original, int3;

	memcpy(&original, reinterpret_cast<void *>(arrive), sizeof(original));
	int3 = (original & ~0xffull) | 0xcc;
	run->began = cpu_time();
	tracee.write_code(int3);
	while (tracee.resume(), tracee.trapped()) {
		user_regs_struct registers = tracee.registers();

		expect("as the address of an INT3", --registers.rip, address);
		if (registers.rdi == run->wanted)
			stopped(registers.rdi);
		tracee.set_registers(registers);
		tracee.write_code(original);
		tracee.step();
		tracee.write_code(int3);
	}
}

static void ptrace_debug_register(int)
{
	Tracee tracee;

	tracee.set_debug_register(0, address);
	tracee.set_debug_register(7, 1); /* number 0, for this task, on execution */
	while (tracee.resume(), tracee.trapped()) {
		user_regs_struct registers = tracee.registers();

		expect("as the address of a breakpoint", registers.rip, address);
		if (registers.rdi == run->wanted)
			stopped(registers.rdi);
		tracee.set_debug_register(6, 0);
	}
}

/* As rr sets it up: it knows the registers of the arrival that it wants to be at. */
static void program_rr(int)
{
	Tracee tracee;
	Bench notes("notes_registers"), compares("compares_registers");
	perf_event_attr attr = breakpoint(arrive);

	attr.pinned = 1;
	attr.precise_ip = 3;
	{
		Event event(attr, tracee.pid());

		notes.globals()->wanted = run->wanted;
		event.enable(notes);
		tracee.resume();
		expect("as the signal that stopped it after the loop", tracee.wait(), SIGSTOP);
	}
	memcpy(compares->bss->registers, notes->bss->registers, sizeof(notes->bss->registers));

	Event event(attr, tracee.pid());

	event.async(SIGTRAP, tracee.pid());
	event.must_attach(compares);
	attr.disabled = 0;
	run->began = cpu_time();
	event.modify(attr);
	while (tracee.resume(), tracee.trapped()) {
		user_regs_struct registers = tracee.registers();

		expect("as the address of a breakpoint", registers.rip, address);
		stopped(registers.rdi);
	}
	expect("hits counted", event.count(), run->arrivals);
}

/*
 * gdb writes into what is shared where it was stopped: nothing it prints need be understood. Had
 * it stopped once more, its script would be over before the loop.
 */
static void gdb(const char *command)
{
	const auto number = [](const volatile void *address) {
		return "*(unsigned long *)" + std::to_string(reinterpret_cast<uintptr_t>(address));
	};
	Child tracee([] {
		while (!run->go)
			usleep(1000);
		loop();
		run->ended = 1;
		return 0;
	});
	std::string pid = std::to_string(tracee.pid());
	const std::string script[] = {
		command + std::string(" *") + std::to_string(address) +
			" if $rdi == " + std::to_string(run->wanted),
		"set variable " + number(&run->go) + " = 1",
		"continue",
		"set variable " + number(&run->stopped_at) + " = $rdi",
		"set variable " + number(&run->stops) + " = $rip == " + std::to_string(address),
		"continue",
	};
	std::vector<const char *> arguments = { "gdb", "-nx", "-batch", "-p", pid.c_str() };

	for (const std::string &line : script) {
		arguments.push_back("-ex");
		arguments.push_back(line.c_str());
	}
	arguments.push_back(nullptr);

	int status = Child([&] {
			     int null = open("/dev/null", O_RDWR);

			     for (int fd : { 0, 1, 2 })
				     dup2(null, fd);
			     execvp("gdb", const_cast<char **>(arguments.data()));
			     return UNAVAILABLE;
		     }).wait();

	if (WIFEXITED(status) && WEXITSTATUS(status) == UNAVAILABLE)
		unavailable("gdb is not installed");
	expect("as gdb's wait status", status, 0);
	expect("ends of the loop", run->ended, 1);
}

static void gdb_software(int)
{
	gdb("break");
}

static void gdb_hardware(int)
{
	gdb("hbreak");
}
#else
static void x86_alone(int)
{
	unavailable("the bench knows it on x86 alone");
}

static constexpr auto protection = x86_alone, ptrace_int3 = x86_alone,
		      ptrace_debug_register = x86_alone, program_rr = x86_alone,
		      gdb_software = x86_alone, gdb_hardware = x86_alone;
#endif

/* DECIDES: a program does, in the kernel, and what it rejects is suppressed. SLOW: 100 arrivals do. */
enum : uint32_t { DECIDES = 1, NO_STOP = 2, SLOW = 4 };

namespace {
struct Way {
	const char *id, *title;
	void (*measure)(int);
	uint32_t flags = 0;

	bool stops() const { return !(flags & NO_STOP); }
	/* Of which it is to stop at one of the last. */
	uint64_t arrivals() const { return flags & SLOW ? 100 : 1000; }
};
} // namespace

static constexpr Way ways[] = {
	{ "bare", "bare call", bare, NO_STOP },
	{ "counting", "counting breakpoint (the floor)", counting, NO_STOP },
	{ "sampling", "sampling, nobody told", sampling, NO_STOP },
	{ "program.async", "program, O_ASYNC", program_async, DECIDES },
	{ "program.sigtrap", "program, sigtrap", program_sigtrap, DECIDES },
	{ "program.ring", "program, ring", program_ring, DECIDES },
	{ "program.rr", "program, as rr sets it up", program_rr, DECIDES },
	{ "program.data", "program, watchpoint", program_data, DECIDES },
	{ "handler.sigtrap", "sigtrap, handler decides", handler_sigtrap },
	{ "handler.sigio", "SIGIO, handler decides", handler_sigio },
	{ "uprobe", "uprobe, BPF decides", uprobe },
	{ "mprotect", "mprotect, handler decides", protection },
	{ "ptrace.register", "ptrace, debug register", ptrace_debug_register },
	{ "ptrace.int3", "ptrace, INT3", ptrace_int3 },
	{ "gdb.hardware", "gdb, hbreak ... if", gdb_hardware, SLOW },
	{ "gdb.software", "gdb, break ... if", gdb_software, SLOW },
};

bool suppresses()
{
	return !observe({ .async = Async::TO_THREAD }, rejects).setsig;
}

bool hits_again()
{
	return !SAVES_HIT && observe({ .async = Async::TO_THREAD }, no_program).count > HITS;
}

/* Empty if it has stopped where it should and nowhere else, or why there is no figure. */
static std::string try_way(const Way &way, uint64_t arrivals, uint64_t wanted)
{
	measuring = way.id;
	if (!run_in_child(arrivals, wanted, way.measure))
		return run->why;
	if (way.flags & DECIDES && run->stops == arrivals && !suppresses())
		return "it stops at each: the kernel does not suppress";
	expect("stops", run->stops, way.stops());
	if (way.stops())
		expect("as the arrival at which it stopped", run->stopped_at, wanted);
	return "";
}

enum { BARE, FLOOR }; /* of ways */

Table stops(int rounds)
{
	Table table;
	std::vector<double> ticks[std::size(ways)];

	for (const Way &way : ways)
		table.rows.push_back({ way.id, way.title, bool(way.flags & DECIDES) });
	for (int round = 0; round < rounds; round++)
		for (size_t i = 0; i < std::size(ways); i++) {
			std::string &why = table.rows[i].why;

			if (why.empty())
				why = try_way(ways[i], ways[i].arrivals(), ways[i].arrivals() - 10);
			if (why.empty())
				ticks[i].push_back(ticks_of_one());
		}

	for (size_t i = 0; i < std::size(ways); i++) {
		if (ticks[i].empty())
			continue;

		Row &row = table.rows[i];

		double p50 = spread(ticks[i]).median;

		row.figures = { { "p50", p50 }, { "ns", std::round(microseconds(p50) * 1000) } };
		add_ratio(row, ticks[i], ticks[FLOOR]);
	}
	return table;
}

static const Way &way_of(const char *id)
{
	return *std::find_if(std::begin(ways), std::end(ways),
			     [=](const Way &way) { return !strcmp(way.id, id); });
}

/*
 * A debugger that replays runs freely to the n-th arrival if it knows when that is, and asks at
 * each one if it does not. What is measured is what the asking adds.
 */
Table replay(int rounds)
{
	constexpr uint64_t MOST = 1000000;
	constexpr double TOO_LONG = 10, ENOUGH = 5; /* seconds: for one, and for all of an n */
	const struct {
		const Way &way;
		const char *figure, *name;
	} seeks[] = {
		{ ways[BARE], "freely", "running freely" },
		{ way_of("program.rr"), "program adds", "the program" },
		{ way_of("ptrace.int3"), "INT3 adds", "ptrace INT3" },
	};
	enum { FREELY, PROGRAM, INT3, SEEKS };
	Table table;
	double expected[SEEKS] = {}; /* seconds, ten times what the last n has taken */

	for (uint64_t n = 10; n <= MOST; n *= 10) {
		Row row = { std::to_string(n), "arrival " + std::to_string(n), true };
		std::vector<double> us[SEEKS], less;
		double spent = 0;

		for (int round = 0; round < rounds && spent < ENOUGH; round++) {
			for (int i = 0; i < SEEKS; i++) {
				if (expected[i] > TOO_LONG)
					continue;
				row.why = try_way(seeks[i].way, n, n - 1);
				if (!row.why.empty())
					break;
				us[i].push_back((run->stopped - run->began) / 1e3);
				spent += us[i].back() / 1e6;
			}
			if (!row.why.empty())
				break;
			for (int i = PROGRAM; i < SEEKS; i++)
				if (!us[i].empty())
					us[i].back() -= us[FREELY].back();
			if (!us[PROGRAM].empty() && !us[INT3].empty())
				less.push_back(100 - 100 * us[PROGRAM].back() / us[INT3].back());
		}
		if (row.why.empty()) {
			for (int i = 0; i < SEEKS; i++) {
				if (us[i].empty()) {
					table.notes.push_back(
						row.title + ": " + seeks[i].name +
						" left out, for it would take more than 10 s");
					continue;
				}
				row.figures.push_back({ seeks[i].figure, spread(us[i]).median });
				expected[i] = spread(us[i]).median * 10 / 1e6;
			}
			if (!less.empty()) {
				row.figures.push_back({ "less, %", spread(less).median });
				row.figures.push_back({ "least", spread(less).least });
				row.figures.push_back({ "most", spread(less).most });
			}
			row.figures.push_back({ "rounds", us[FREELY].size() });
		}
		table.rows.push_back(row);
	}
	table.notes.push_back("rr's author measured 94 % less, of a whole replay");
	return table;
}
