// SPDX-License-Identifier: GPL-2.0
/* Debuggers that use ptrace(2) on a task that also hits a filtered breakpoint: C12. */
#include <sys/user.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

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

#ifdef __x86_64__
static unsigned long debug_register(int n)
{
	return offsetof(struct user, u_debugreg) + n * sizeof(long);
}

/* Sets a breakpoint by ptrace(2), as gdb does for hardware breakpoints and watchpoints. */
static void set_debug_register(pid_t pid, const volatile void *addr, unsigned long dr7)
{
	if (ptrace(PTRACE_POKEUSER, pid, debug_register(0), addr) ||
	    ptrace(PTRACE_POKEUSER, pid, debug_register(7), dr7))
		setup_failed("PTRACE_POKEUSER u_debugreg", errno);
}

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

static constexpr unsigned long DR7_EXECUTE = 0x1, DR7_WRITE_8 = 0x90001, DR6_TRAP_0 = 1;

/* The ptrace breakpoint must stop the tracee although a program rejects the event's hits. */
static const struct Ptraced {
	const char *name, *says;
	int (*body)();
	const volatile void *addr;
	unsigned long dr7;
} ptraced[] = {
	{ "ptrace", "a ptrace breakpoint stops a tracee that also hits a filtered breakpoint",
	  hit_both, reinterpret_cast<const void *>(hit_other), DR7_EXECUTE },
	{ "ptrace_same",
	  "a ptrace breakpoint at the address of a filtered breakpoint stops the tracee", hit_both,
	  reinterpret_cast<const void *>(hit), DR7_EXECUTE },
	{ "ptrace_watch", "a ptrace watchpoint stops a tracee that also hits a filtered breakpoint",
	  hit_and_write, &watched, DR7_WRITE_8 },
};

static void check_ptraced(const Ptraced &p)
{
	Filter filter;
	Tracee tracee(p.body);

	set_debug_register(tracee.pid(), p.addr, p.dr7);

	Event event(breakpoint(hit), tracee.pid());
	Ring ring(event);
	uint64_t stops = 0, at_breakpoint = 0;

	event.enable(filter);
	while (tracee.resume(PTRACE_CONT)) {
		stops++;
		at_breakpoint += tracee.has_stopped_by(SIGTRAP) &&
				 ptrace(PTRACE_PEEKUSER, tracee.pid(), debug_register(6), nullptr) &
					 DR6_TRAP_0;
	}
	ring.drain();
	EXPECT_STATUS(tracee.status(), 0, "the tracee");
	EXPECT_EQ(at_breakpoint, HITS, "stops at the ptrace breakpoint");
	EXPECT_EQ(stops, HITS, "stops of the tracee");
	EXPECT_EQ(event.count(), HITS, "hits of the filtered breakpoint");
	EXPECT_EQ(filter.runs(), HITS, "runs of the program");
	EXPECT_EQ(ring.samples(), 0, "samples");
}

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

static const bool added_debuggers = [] {
	/*
	 * With KASAN gdb takes 40 s to start, because it reads all files over 9p. Its
	 * commands use addresses, so that it need not read debug information.
	 */
	add_test({ "debuggers.gdb", "C12",
		   "a gdb watchpoint sees every change in a task that also hits a filtered "
		   "breakpoint",
		   check_gdb, 120 });
	for (const Ptraced &p : ptraced)
		add_test({ std::string("debuggers.") + p.name, "C12", p.says,
			   [&p] { check_ptraced(p); } });
	return true;
}();
#endif
