// SPDX-License-Identifier: GPL-2.0
/*
 * Makes all kinds of calls that concern perf events with BPF programs, in every order and with bad
 * arguments, while the events are hit. Run it in a guest: it can crash a kernel that has a bug.
 *
 * An episode is a process in which two threads and their forked children share a pool of
 * descriptors; it may be killed by its own signals. Each episode has a seed, which is written to
 * the kernel log so that it can be repeated. At the end everything is closed, and the numbers of
 * kernel objects must be the same as before.
 */
#include <glob.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "fuzz/fuzz.h"
#include "lib/arch.h"
#include "lib/args.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/cpus.h"
#include "lib/fail.h"
#include "lib/hit.h"
#include "lib/kernel.h"

Counts *counts;
std::vector<int> right_progs, wrong_progs;
std::vector<std::unique_ptr<Filter>> filters;
uint64_t tracepoint_id;
uint32_t pmu;
std::vector<Hits> overflows;
std::vector<uint64_t> kernel_text, kernel_data;

[[noreturn]] static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "perf_bpf_fuzz: %s: %s\n", what, why);
	exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, errno_name(err).c_str());
}

void unavailable(const char *reason)
{
	give_up("cannot start", reason);
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

static uint64_t total_runs()
{
	uint64_t runs = 0;

	for (auto &filter : filters)
		runs += filter->runs();
	return runs;
}

/* Reports kinds of calls that never succeed: they test only the kernel's first check. */
static int report_kinds(bool links_too)
{
	const std::vector<Kind> &all = kinds();
	int idle = 0;

	printf("%-18s %9s %9s\n", "call", "made", "succeeded");
	for (size_t i = 0; i < all.size(); i++) {
		uint64_t tried = counts->tried[i], succeeded = counts->errors[i][0];
		std::vector<std::pair<uint64_t, int>> failures;

		for (size_t err = 1; err < ERRNOS; err++)
			if (counts->errors[i][err])
				failures.push_back({ counts->errors[i][err], int(err) });
		std::sort(failures.rbegin(), failures.rend());
		printf("%-18s %9lu %9lu %3lu %%", all[i].name, tried, succeeded,
		       tried ? succeeded * 100 / tried : 0);
		if (failures.size() > 4)
			failures.resize(4);
		for (auto &[number, err] : failures)
			printf("  %lu %s", number, errno_name(err).c_str());
		putchar('\n');
		if (!succeeded && tried > 1000 &&
		    !(all[i].flags & (links_too ? NEVER : NEVER | LINKS))) {
			printf("idle: %s: none of %lu succeeded\n", all[i].name, tried);
			idle++;
		}
	}
	return idle;
}

static const char usage[] =
	"usage: perf_bpf_fuzz [--seed S] [--calls N]\n"
	"Makes calls on perf events with BPF programs, in every order and with bad arguments, "
	"and\n"
	"looks for leaks and hangs. Run it in a guest: it can crash a kernel that has a bug.\n"
	"Exit code 0: nothing found, 1: a leak, a hang, or calls that never succeed, 2: cannot "
	"start.\n"
	"  --seed S     the seed of the first episode (default 1); the kernel log has that of the\n"
	"               last one, and --seed S --calls 1 repeats it\n"
	"  --calls N    stop after N calls (default 1000)\n";

struct Running {
	pid_t pid;
	uint64_t seed;
	double begun;
	bool killed;
};

/* Prints the state and the kernel stack of each task in a process group. */
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

/* Runs episodes until @calls calls are made. Returns the number of episodes that hang. */
static int run_episodes(uint64_t seed, uint64_t calls)
{
	constexpr double PATIENCE = 180; /* seconds, on a busy machine */
	std::vector<Running> running;
	uint64_t episodes = 0, shown = 0, killed_by[_NSIG] = {};
	const size_t at_once = 2 * usable_cpus().size();
	const double begun = seconds_now();
	int hung = 0;

	while (!running.empty() || counts->calls < calls) {
		if (running.size() < at_once &&
		    counts->calls + running.size() * 2 * CALLS_EACH < calls) {
			write_kernel_log("perf_bpf_filter: test fuzz:seed=" + std::to_string(seed));
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
			/* Kill its children, too, whose parent is now this process, a subreaper. */
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
				       r.killed ? "it cannot be killed" : "it does not end");
				report_tasks(r.pid);
				fflush(stdout);
				hung++;
				if (r.killed) {
					write_kernel_log("perf_bpf_fuzz: cannot be killed");
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

	if (argc == 2 && !strcmp(argv[1], "--hit")) { /* what the children of an episode exec */
		hit(0);
		watched[0] = 1;
		return 0;
	}
	if (char **more = parse_arguments(
		    argc, argv, usage,
		    { { "seed", nullptr, &seed }, { "calls", nullptr, &calls, 1 } });
	    *more)
		bad_usage("unknown argument ", *more);
	if (getuid())
		give_up("cannot start", "it requires root; run it as root in a guest");

	counts = &shared_with_children<Counts>();

	/* Programs on per-CPU events may send this signal to any process. */
	signal(SIGUSR1, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	std::ifstream("/sys/kernel/tracing/events/syscalls/sys_enter_getppid/id") >> tracepoint_id;
	pmu = pmu_type();
	for (Context context : usable_contexts())
		overflows.emplace_back(context);
	/* No functions that irq_work calls: each hit there would cause the next one, forever. */
	kernel_text = kernel_addresses({ SYSCALL_SYMBOL("getppid"), "__perf_event_overflow",
					 "bpf_overflow_handler", "perf_event_output_forward" });
	kernel_data = kernel_addresses({ "jiffies", "jiffies_64" });
	const int registers = free_registers();

	if (!registers)
		unavailable("no hardware breakpoints");

	/* Wait until the kernel has freed what this process has just closed. */
	auto before = census();

	for (sleep(1); census() != before; sleep(1))
		before = census();

	prepare_programs();

	const bool links_too = filters[0]->can_link();
	int found = run_episodes(seed, calls);

	found += report_kinds(links_too);
	filters.clear();
	if (int now = free_registers(); now != registers) {
		printf("leak: debug registers: %d available, before %d\n", now, registers);
		found++;
	}
	found += report_leaks(before);
	found += report_kmemleak();
	printf("found: %d\n", found);
	return found ? 1 : 0;
}
