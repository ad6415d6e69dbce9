// SPDX-License-Identifier: GPL-2.0
/*
 * Compares techniques that stop at the one arrival at an address that matters, all with the same
 * loop and the same condition. A technique has a figure only if it stops there and nowhere else.
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

static constexpr int UNAVAILABLE = 4; /* exit code of a child, with the reason in run->why */
static constexpr unsigned DEADLINE = 300; /* seconds for a child */

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
		_exit(2); /* the child has printed the reason */
	if (status)
		give_up(("expected exit code 0, got " + status_text(status) + ": the child")
				.c_str());
	return true;
}

/* On a separate page, because one technique protects the page. */
static constexpr size_t PAGE = 4096;
alignas(PAGE) static volatile uint64_t page[PAGE / sizeof(uint64_t)];
static volatile uint64_t &word = page[0];

/* clang lacks the first attribute, and before version 15 the second one. */
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

/* With a frame pointer the function begins with a push, like most functions. */
NOINLINE_NOCLONE FRAME_POINTER void arrive(uint64_t nth)
{
	word = nth;
}

/* Leaves no time stamp in the registers, because some techniques compare these. */
NOINLINE_NOCLONE CLEARS_REGISTERS static void stamp(uint64_t *at)
{
	*at = now();
}

NOINLINE_NOCLONE void loop(uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++) {
		auto &timestamps = run->timestamps[i % Run::SLOTS];

		stamp(&timestamps.before);
		arrive(i);
		stamp(&timestamps.after);
	}
}

/* Called when the loop has been stopped at arrival @nth. */
static void stopped(uint64_t nth)
{
	run->stopped_at = nth;
	run->stops++;
}

double ticks_of_one()
{
	std::vector<double> ticks;

	for (uint64_t i = 0; i < std::min(run->arrivals, Run::SLOTS); i++)
		ticks.push_back(run->timestamps[i].after - run->timestamps[i].before);
	return spread(ticks).median;
}

/* --- Techniques in which the arriving task decides or receives a signal */

static uint64_t first_argument(void *context)
{
#ifdef __x86_64__
	return static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_RDI];
#else
	return static_cast<ucontext_t *>(context)->uc_mcontext.regs[0];
#endif
}

static void record_stop(int, siginfo_t *, void *context)
{
	stopped(first_argument(context));
}

static void record_if_wanted(int, siginfo_t *, void *context)
{
	uint64_t nth = first_argument(context);

	if (nth == run->wanted)
		stopped(nth);
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
	loop();
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

	/* The event's count, at the place of the address, identifies the arrival of a sample. */
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

/* A breakpoint that sends a signal to the task itself. Without @program its handler decides. */
static void signal_to_self(perf_event_attr attr, const char *program)
{
	const int sig = attr.sigtrap ? SIGTRAP : SETSIG;

	if (hits_again())
		unavailable(HITS_AGAIN);

	Event event(attr);

	const Handler handler(sig, program ? record_stop : record_if_wanted);
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
	const Handler handler(SIGUSR1, record_stop);
	bench.globals()->wanted = run->wanted;
	loop();
	bpf_link__destroy(link);
}

#ifdef __x86_64__
static void protect(int access)
{
	if (mprotect(const_cast<uint64_t *>(&word), PAGE, access))
		setup_failed("mprotect", errno);
}

/* Permits the write for one single step. */
static void on_fault(int, siginfo_t *, void *context)
{
	protect(PROT_READ | PROT_WRITE);
	static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] |= STEP_FLAG;
}

static void on_step(int, siginfo_t *, void *context)
{
	if (word == run->wanted)
		stopped(word);
	protect(PROT_READ);
	static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~STEP_FLAG;
}

static void protection(int)
{
	const Handler faults(SIGSEGV, on_fault);
	const Handler steps(SIGTRAP, on_step);
	protect(PROT_READ);
	loop();
	protect(PROT_READ | PROT_WRITE);
}

/* --- Techniques in which another process decides or is stopped */

/* A tracee that runs the loop each time it is resumed, and then stops again. */
class LoopTracee : public Tracee {
public:
	LoopTracee()
		: Tracee([] {
			for (;; raise(SIGSTOP))
				loop();
			return 0;
		})
	{
		must_have_stopped_by(SIGSTOP, "before the loop");
	}

	/* Resumes it until a SIGTRAP, or returns false at the end of the loop. */
	bool run_to_trap()
	{
		resume(PTRACE_CONT);
		if (has_stopped_by(SIGTRAP))
			return true;
		must_have_stopped_by(SIGSTOP, "after the loop");
		return false;
	}
	void run_loop()
	{
		resume(PTRACE_CONT);
		must_have_stopped_by(SIGSTOP, "after the loop");
	}
	void step()
	{
		resume(PTRACE_SINGLESTEP);
		must_have_stopped_by(SIGTRAP, "after one step");
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
	void must_have_stopped_by(int sig, const char *when) const
	{
		if (!has_stopped_by(sig))
			give_up(("expected stopped by " + signal_name(sig) + ", got " +
				 status_text(status()) + ": the tracee " + when)
					.c_str());
	}
	void ask(__ptrace_request what, uint64_t address, uint64_t data) const
	{
		if (ptrace(what, pid(), address, data))
			setup_failed("ptrace", errno);
	}
};

static const uint64_t address = reinterpret_cast<uintptr_t>(arrive);

/* As in all debuggers: remove the breakpoint, step, insert the breakpoint again. */
static void ptrace_int3(int)
{
	LoopTracee tracee;
	uint64_t original, int3;

	memcpy(&original, reinterpret_cast<void *>(arrive), sizeof(original));
	int3 = (original & ~0xffull) | 0xcc;
	tracee.write_code(int3);
	while (tracee.run_to_trap()) {
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
	LoopTracee tracee;

	tracee.set_debug_register(0, address);
	tracee.set_debug_register(7, 1); /* DR0, local, execute */
	while (tracee.run_to_trap()) {
		user_regs_struct registers = tracee.registers();

		expect("as the address of a breakpoint", registers.rip, address);
		if (registers.rdi == run->wanted)
			stopped(registers.rdi);
		tracee.set_debug_register(6, 0);
	}
}

/* As in rr, which knows the registers of the wanted arrival. */
static void program_rr(int)
{
	LoopTracee tracee;
	Bench notes("notes_registers"), compares("compares_registers");
	perf_event_attr attr = breakpoint(arrive);

	attr.pinned = 1;
	attr.precise_ip = 3;
	{
		Event event(attr, tracee.pid());

		notes.globals()->wanted = run->wanted;
		event.enable(notes);
		tracee.run_loop();
	}
	memcpy(compares->bss->registers, notes->bss->registers, sizeof(notes->bss->registers));

	Event event(attr, tracee.pid());

	event.async(SIGTRAP, tracee.pid());
	event.must_attach(compares);
	attr.disabled = 0;
	event.modify(attr);
	while (tracee.run_to_trap()) {
		user_regs_struct registers = tracee.registers();

		expect("as the address of a breakpoint", registers.rip, address);
		stopped(registers.rdi);
	}
	expect("hits counted", event.count(), run->arrivals);
}

/*
 * gdb writes the arrival at which it has stopped into the shared memory, so that its output need
 * not be parsed. If it stopped once more, its script would end before the loop does. @stub is a
 * command that attaches to the process whose id is appended; without a stub, gdb attaches.
 */
static void gdb(const char *command, const std::string &stub = "")
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
	const std::string pid = std::to_string(tracee.pid());
	const std::string script[] = {
		stub.empty() ? "attach " + pid : "target remote | " + stub + " " + pid,
		command + std::string(" *") + std::to_string(address) +
			" if $rdi == " + std::to_string(run->wanted),
		"set variable " + number(&run->go) + " = 1",
		"continue",
		"set variable " + number(&run->stopped_at) + " = $rdi",
		"set variable " + number(&run->stops) + " = $rip == " + std::to_string(address),
		"continue",
	};
	std::vector<const char *> arguments = { "gdb", "-nx", "-batch" };

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
	if (status)
		give_up(("expected exit code 0, got " + status_text(status) + ": gdb").c_str());
	expect("complete loops", run->ended, 1);
}

static void gdb_software(int)
{
	gdb("break");
}

static void gdb_hardware(int)
{
	gdb("hbreak");
}

static void gdb_server(int)
{
	gdb("break", "gdbserver --attach -");
}

static void gdb_filter(int)
{
	gdb("break", file_of_own_folder("perf_bpf_gdb") + " --attach");
}
#else
static void x86_only(int)
{
	unavailable("the benchmark implements it on x86 only");
}

static constexpr auto protection = x86_only, ptrace_int3 = x86_only,
		      ptrace_debug_register = x86_only, program_rr = x86_only,
		      gdb_software = x86_only, gdb_hardware = x86_only, gdb_server = x86_only,
		      gdb_filter = x86_only;
#endif

/* DECIDES: a program decides, and rejected hits are suppressed. SLOW: 100 arrivals are enough. */
enum : uint32_t { DECIDES = 1, NO_STOP = 2, SLOW = 4 };

namespace {
struct Technique {
	const char *id, *title;
	void (*measure)(int);
	uint32_t flags = 0;

	bool stops() const { return !(flags & NO_STOP); }
	/* One of the last arrivals is the one at which to stop. */
	uint64_t arrivals() const { return flags & SLOW ? 100 : 1000; }
};
} // namespace

static constexpr Technique techniques[] = {
	{ "bare", "bare call", bare, NO_STOP },
	{ "counting", "counting breakpoint (the floor)", counting, NO_STOP },
	{ "sampling", "sampling, no reader", sampling, NO_STOP },
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
	{ "gdb.server", "gdb, gdbserver decides", gdb_server, SLOW },
	{ "gdb.filter", "gdb with perf_bpf_gdb", gdb_filter, SLOW },
};

bool suppresses()
{
	return !observe({ .async = Async::TO_THREAD }, rejects).setsig;
}

bool hits_again()
{
	return !SIGRETURN_SKIPS_HIT &&
	       observe({ .async = Async::TO_THREAD }, no_program).count > HITS;
}

/* Returns "" if it has stopped exactly at the wanted arrival, else why there is no figure. */
static std::string try_technique(const Technique &technique, uint64_t arrivals, uint64_t wanted)
{
	measuring = technique.id;
	if (!run_in_child(arrivals, wanted, technique.measure))
		return run->why;
	if (technique.flags & DECIDES && run->stops == arrivals && !suppresses())
		return "it stops at each arrival: the kernel does not suppress";
	expect("stops", run->stops, technique.stops());
	if (technique.stops())
		expect("as the arrival at which it stopped", run->stopped_at, wanted);
	return "";
}

constexpr size_t FLOOR = 1; /* index of a technique */

Table stops(int rounds)
{
	Table table;
	std::vector<double> ticks[std::size(techniques)];

	for (const Technique &technique : techniques)
		table.rows.push_back(
			{ technique.id, technique.title, bool(technique.flags & DECIDES) });
	for (int round = 0; round < rounds; round++)
		for (size_t i = 0; i < std::size(techniques); i++) {
			std::string &why = table.rows[i].why;

			if (why.empty())
				why = try_technique(techniques[i], techniques[i].arrivals(),
						    techniques[i].arrivals() - 10);
			if (why.empty())
				ticks[i].push_back(ticks_of_one());
		}

	for (size_t i = 0; i < std::size(techniques); i++) {
		if (ticks[i].empty())
			continue;

		Row &row = table.rows[i];

		double p50 = spread(ticks[i]).median;

		row.figures = { { "p50", p50 }, { "ns", std::round(microseconds(p50) * 1000) } };
		add_ratio(row, ticks[i], ticks[FLOOR]);
	}
	return table;
}
