// SPDX-License-Identifier: GPL-2.0
/* Debuggers that use ptrace(2) on a task that also hits a filtered breakpoint, and kgdb: C12. */
#include <elf.h>
#include <sys/uio.h>
#include <sys/user.h>

#ifdef __aarch64__
#include <asm/ptrace.h>
#endif

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "lib/pmu.h"
#include "lib/ptrace.h"
#include "tests/common.h"

static int hit_both()
{
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		hit_other(i);
	}
	return 0;
}

/*
 * Single-steps a tracee until it exits. Returns the pc after each step, and in @runs how often the
 * program ran.
 */
static std::vector<uint64_t> steps(bool attached, uint64_t *runs)
{
	std::vector<uint64_t> stops;
	Filter filter;
	Tracee tracee(hit_both);
	Event event(breakpoint(hit), tracee.pid());

	if (attached)
		event.must_attach(filter);
	event.enable();
	while (tracee.resume(PTRACE_SINGLESTEP))
		stops.push_back(tracee.pc());
	*runs = filter.runs();
	EXPECT_EQ(event.count(), HITS, "hits counted");
	return stops;
}

TEST("debuggers.kgdb", "C12", "a watchpoint that kgdb has installed itself is hit")
{
	EXPECT_EQ(kgdb_hits(), 1, "hits of the watchpoint");
}

TEST("debuggers.singlestep", "C12",
     "single-stepping stops at the same addresses with and without a program on a breakpoint")
{
	uint64_t no_runs, runs;
	std::vector<uint64_t> bare = steps(false, &no_runs), filtered = steps(true, &runs);

	EXPECT_EQ(filtered.size(), bare.size(), "single steps until the tracee exits");
	EXPECT_TRUE(filtered == bare, "the tracee stops at the same addresses");
	EXPECT_EQ(std::count(bare.begin(), bare.end(), reinterpret_cast<uintptr_t>(hit)), HITS,
		  "steps that stop at the breakpoint");
	EXPECT_EQ(runs, HITS, "runs of the program");
}

/* A breakpoint of ptrace(2), as gdb sets it, or its watchpoint of 8 bytes. */
struct PtraceBreakpoint {
	const volatile void *addr;
	Access access; /* EXECUTE or WRITE */
};

#if defined(__x86_64__)

constexpr bool PTRACE_STOPS_AGAIN = false; /* at the same hit, when the tracee continues */

static unsigned long debug_register(int n)
{
	return offsetof(struct user, u_debugreg) + n * sizeof(long);
}

static void set_breakpoint(const Tracee &tracee, const PtraceBreakpoint &b, bool on = true)
{
	constexpr unsigned long DR7_EXECUTE = 0x1, DR7_WRITE_8 = 0x90001;
	const unsigned long dr7 = b.access == Access::EXECUTE ? DR7_EXECUTE : DR7_WRITE_8;

	if (ptrace(PTRACE_POKEUSER, tracee.pid(), debug_register(0), b.addr) ||
	    ptrace(PTRACE_POKEUSER, tracee.pid(), debug_register(7), on ? dr7 : 0))
		setup_failed("PTRACE_POKEUSER u_debugreg", errno);
}

static bool is_at_breakpoint(const Tracee &tracee)
{
	constexpr unsigned long DR6_TRAP_0 = 1;

	return tracee.has_stopped_by(SIGTRAP) &&
	       ptrace(PTRACE_PEEKUSER, tracee.pid(), debug_register(6), nullptr) & DR6_TRAP_0;
}

#elif defined(__aarch64__)

constexpr bool PTRACE_STOPS_AGAIN = true;

static void set_breakpoint(const Tracee &tracee, const PtraceBreakpoint &b, bool on = true)
{
	/* The encoding of asm/hw_breakpoint.h, for EL0: length << 5 | type << 3 | enabled */
	constexpr uint32_t EXECUTE_4 = 0xf << 5 | 1, WRITE_8 = 0xff << 5 | 2 << 3 | 1;
	const bool executes = b.access == Access::EXECUTE;
	user_hwdebug_state state = {};
	iovec first = { &state, offsetof(user_hwdebug_state, dbg_regs[1]) };

	state.dbg_regs[0].addr = reinterpret_cast<uintptr_t>(b.addr);
	state.dbg_regs[0].ctrl = (executes ? EXECUTE_4 : WRITE_8) & ~uint32_t(!on);
	if (ptrace(PTRACE_SETREGSET, tracee.pid(), executes ? NT_ARM_HW_BREAK : NT_ARM_HW_WATCH,
		   &first))
		setup_failed("PTRACE_SETREGSET", errno);
}

static bool is_at_breakpoint(const Tracee &tracee)
{
	siginfo_t info = {};

	return tracee.has_stopped_by(SIGTRAP) &&
	       !ptrace(PTRACE_GETSIGINFO, tracee.pid(), nullptr, &info) &&
	       info.si_code == TRAP_HWBKPT;
}

#endif

static volatile uint64_t watched, next_word;

static int hit_and_write()
{
	for (uint64_t i = 0; i < HITS; i++) {
		hit(i);
		watched = i;
		next_word = i; /* for QEMU's TCG, see breakpoint.cc */
	}
	return 0;
}

/* The ptrace breakpoint must stop the tracee although a program rejects the event's hits. */
static const struct Ptraced {
	const char *name, *says;
	int (*body)();
	PtraceBreakpoint breakpoint;
} ptraced[] = {
	{ "ptrace",
	  "a ptrace breakpoint stops a tracee that also hits a filtered breakpoint",
	  hit_both,
	  { reinterpret_cast<const void *>(hit_other), Access::EXECUTE } },
	{ "ptrace_same",
	  "a ptrace breakpoint at the address of a filtered breakpoint stops the tracee",
	  hit_both,
	  { reinterpret_cast<const void *>(hit), Access::EXECUTE } },
	{ "ptrace_watch",
	  "a ptrace watchpoint stops a tracee that also hits a filtered breakpoint",
	  hit_and_write,
	  { &watched, Access::WRITE } },
};

static void check_ptraced(const Ptraced &p)
{
	Filter filter;
	Tracee tracee(p.body);

	set_breakpoint(tracee, p.breakpoint);

	Event event(breakpoint(hit), tracee.pid());
	Ring ring(event);
	uint64_t stops = 0, at_breakpoint = 0;

	event.enable(filter);
	while (tracee.resume(PTRACE_CONT)) {
		stops++;
		if (!is_at_breakpoint(tracee))
			continue;
		at_breakpoint++;
		if (PTRACE_STOPS_AGAIN) {
			set_breakpoint(tracee, p.breakpoint, false);
			if (!tracee.resume(PTRACE_SINGLESTEP))
				break;
			set_breakpoint(tracee, p.breakpoint);
		}
	}
	ring.drain();
	EXPECT_STATUS(tracee.status(), 0, "the tracee");
	EXPECT_EQ(at_breakpoint, HITS, "stops at the ptrace breakpoint");
	EXPECT_EQ(stops, HITS, "stops of the tracee");
	EXPECT_EQ(event.count(), HITS, "hits of the filtered breakpoint");
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(ring.samples(), 0, "samples");
}

#ifdef __x86_64__
static void check_gdb()
{
	static volatile uint64_t go;
	Filter filter;
	Child victim([] {
		while (!go)
			usleep(1000);
		for (uint64_t i = 1; i <= HITS; i++) {
			hit(i);
			watched = i; /* a different value, because gdb counts only changes */
			next_word = i;
		}
		return 0;
	});
	Event event(breakpoint(hit), victim.pid());
	std::string said;
	char line[256];

	if (system("command -v gdb >/dev/null"))
		unavailable("gdb is not installed");
	event.enable(filter);
	snprintf(line, sizeof(line),
		 "gdb -nx -readnever -batch -p %d -ex 'watch *(long *)%p' -ex 'ignore 1 1000' "
		 "-ex 'set *(long *)%p = 1' -ex continue -ex 'info breakpoints' 2>&1",
		 victim.pid(), const_cast<uint64_t *>(&watched), const_cast<uint64_t *>(&go));

	FILE *gdb = popen(line, "r");

	if (!gdb)
		setup_failed("popen gdb", errno);
	while (fgets(line, sizeof(line), gdb))
		said += line;
	pclose(gdb);

	std::string hits = "already hit " + std::to_string(HITS) + " times";

	EXPECT_TRUE(said.find("hw watchpoint") != said.npos, "gdb set a hardware watchpoint");
	EXPECT_TRUE(said.find(hits) != said.npos, "gdb saw every change");
	EXPECT_EQ(event.count(), HITS, "hits of the filtered breakpoint");
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
}

static const bool added_gdb = [] {
	/*
	 * With KASAN gdb takes 40 s to start, because it reads all files over 9p. Its
	 * commands use addresses, so that it need not read debug information.
	 */
	add_test({ "debuggers.gdb", "C12",
		   "a gdb watchpoint sees every change in a task that also hits a filtered "
		   "breakpoint",
		   check_gdb, 120 });
	return true;
}();
#endif

static const bool added_ptraced = [] {
	for (const Ptraced &p : ptraced)
		add_test({ std::string("debuggers.") + p.name, "C12", p.says,
			   [&p] { check_ptraced(p); } });
	return true;
}();
