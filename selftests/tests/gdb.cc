// SPDX-License-Identifier: GPL-2.0
/*
 * Real gdb and gdbserver with perf_bpf_gdb between them. gdb starts slowly on an emulated CPU, so
 * each session tests several things. The script prints "mark ..." at each stop, and the test
 * expects exactly these marks.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "lib/clock.h"
#include "lib/random.h"
#include "lib/rights.h"
#include "tests/common.h"

namespace {

#ifdef __x86_64__
/* gdb's names for registers. With $sp, which exists everywhere, gdb evaluates the condition. */
#define ARGUMENT "$rdi"
#define STACK_POINTER "$rsp"
#else
#define ARGUMENT "$x0"
#define STACK_POINTER "$x29"
#endif

/* The limit for a session, on an emulated CPU with a debug kernel, and for reporting a hang. */
constexpr int SECONDS = 220, SECONDS_TO_TELL = 20;

bool is_installed(const std::string &command)
{
	return !system(("command -v " + command + " >/dev/null").c_str());
}

/* A gdb with the tracee as its program, and perf_bpf_gdb as its target. */
class Gdb {
public:
	/* @arguments are for perf_bpf_gdb, which cannot load a program without @with_rights. */
	explicit Gdb(const std::string &script, const std::string &arguments = "",
		     bool with_rights = true)
		: output_(O_CLOEXEC)
		, packets_(memfd_create("packets", 0))
		, end_(seconds_now() + SECONDS)
		, gdb_([&] { return exec(script, arguments, with_rights); })
	{
		output_.in.close();
	}

	pid_t pid() const { return gdb_.pid(); }
	/* Reads until @text or the end of the output. Returns whether @text has come. */
	bool await(const std::string &text, size_t from = 0)
	{
		char buffer[4096];

		while (said_.find(text, from) == said_.npos) {
			pollfd more = { output_.out.get(), POLLIN, 0 };
			const double left = std::max(end_ - seconds_now(), 0.0);
			const int ready = poll(&more, 1, static_cast<int>(left * 1000));

			if (!ready)
				hangs();
			if (ready < 0 && errno == EINTR)
				continue;

			const ssize_t n = read(output_.out.get(), buffer, sizeof(buffer));

			if (n <= 0)
				break;
			said_.append(buffer, n);
		}
		return said_.find(text) != said_.npos;
	}
	/* The whole output of gdb, gdbserver and the tracee. */
	const std::string &said()
	{
		await("\xff");
		return said_;
	}
	bool has_said(const std::string &text) { return said().find(text) != said_.npos; }

	std::vector<std::string> marks()
	{
		std::vector<std::string> found;

		said();
		for (size_t at = 0, end; at < said_.size(); at = end + 1) {
			end = std::min(said_.find('\n', at), said_.size());
			if (said_.compare(at, 5, "mark ") == 0)
				found.push_back(said_.substr(at + 5, end - at - 5));
		}
		return found;
	}
	void expect_marks(const std::vector<std::string> &wanted,
			  CallSite site = CallSite::of_call())
	{
		const auto joined = [](const std::vector<std::string> &marks) {
			std::string text;

			for (const std::string &mark : marks)
				text += (text.empty() ? "" : ", ") + mark;
			return text;
		};

		if (marks() == wanted)
			return;
		expected(joined(wanted), joined(marks()), "stops of gdb", site.file, site.line);
		show();
	}
	/* The number that follows the @nth "@text", from 0. */
	long number_after(const std::string &text, int nth = 0)
	{
		size_t at;

		if (nth || !await(text) || !await("\n", said_.find(text)))
			said();
		at = said_.find(text);
		for (; nth && at != said_.npos; nth--)
			at = said_.find(text, at + 1);
		if (at != said_.npos)
			return atol(said_.c_str() + at + text.size());
		show();
		fail("gdb's session has no \"%s\"", text.c_str());
	}
	int times_said(const std::string &text)
	{
		int times = 0;

		for (size_t at = 0; (at = said().find(text, at)) != said_.npos; at++)
			times++;
		return times;
	}
	void show() const { note_lines(said_); }

private:
	static void note_lines(const std::string &text)
	{
		for (size_t at = 0, end; at < text.size(); at = end + 1) {
			end = std::min(text.find('\n', at), text.size());
			note("%s", text.substr(at, end - at).c_str());
		}
	}

	[[noreturn]] void hangs() const
	{
		char packets[4096];
		const off_t size = lseek(packets_.get(), 0, SEEK_END);
		const ssize_t n = pread(packets_.get(), packets, sizeof(packets),
					std::max(size - off_t(sizeof(packets)), off_t(0)));

		show();
		note("the last packets of gdb and its target:");
		note_lines(std::string(packets, std::max<ssize_t>(n, 0)));
		fail("expected gdb's session to end within %d s, got none", SECONDS);
	}

	int exec(const std::string &script, const std::string &arguments, bool with_rights)
	{
		const int file = memfd_create("script", 0);
		const std::string tracee = file_of_own_folder("perf_bpf_gdb_tracee"),
				  text = "set confirm off\nset pagination off\nset width 0\n"
					 "set sysroot /\nset breakpoint pending on\n"
					 "set remotetimeout 60\n"
					 "set remotelogfile /proc/self/fd/" +
					 std::to_string(packets_.get()) +
					 "\n"
					 "file " +
					 tracee + "\nset remote exec-file " + tracee +
					 "\ntarget extended-remote | " +
					 file_of_own_folder("perf_bpf_gdb") + " " + arguments +
					 "\n" + script,
				  name = "/proc/self/fd/" + std::to_string(file);

		if (write(file, text.data(), text.size()) != ssize_t(text.size()))
			return 1;
		dup2(output_.in.get(), STDOUT_FILENO);
		dup2(output_.in.get(), STDERR_FILENO);
		if (!with_rights)
			become(NOBODY, 0);
		execlp("gdb", "gdb", "-nx", "-q", "-batch", "-x", name.c_str(), nullptr);
		return 127;
	}

	Pipe output_;
	Fd packets_;
	double end_;
	std::string said_;
	Child gdb_;
};

/* Each test is a session, and is skipped if gdb or gdbserver is not installed. */
void add_session(const char *name, const char *says, void (*check)())
{
	add_test({ std::string("gdb.") + name, "C1", says,
		   [check] {
			   for (const char *command : { "gdb", "gdbserver" })
				   if (!is_installed(command))
					   unavailable((std::string("no ") + command).c_str());
			   check();
		   },
		   SECONDS + SECONDS_TO_TELL });
}

/*
 * Each stop by gdbserver is a voluntary context switch of the tracee. If rejected hits stopped it,
 * there would be thousands.
 */
void expect_few_switches(Gdb &gdb, int nth = 0)
{
	if (kernel_rejects_sigtrap())
		EXPECT_LT(gdb.number_after("switches ", nth), 500, "stops of the tracee");
}

void expect_translated(Gdb &gdb)
{
	if (kernel_rejects_sigtrap())
		EXPECT_FALSE(gdb.has_said("perf_bpf_gdb: gdbserver evaluates"),
			     "conditions left to gdbserver");
	else
		EXPECT_TRUE(gdb.has_said("perf_bpf_gdb: gdbserver evaluates all conditions: "),
			    "message of what is missing");
}

void check_arrival()
{
	Gdb gdb("break work if i == 4321\n"
		"run loop 5000\n"
		"printf \"mark break %d\\n\", i\n"
		"info breakpoints\n"
		"monitor perf_bpf\n"
		"backtrace\n"
		"continue\n"
		"delete\n"
		"hbreak work if twice == 6000\n"
		"run loop 5000\n"
		"printf \"mark hbreak %d\\n\", i\n"
		"continue\n");

	/* At its entry, work() still finds the previous call's value of "twice" on the stack. */
	gdb.expect_marks({ "break 4321", "hbreak 3001" });
	EXPECT_TRUE(gdb.has_said("breakpoint already hit 1 time\n"), "hits that gdb counts");
	EXPECT_TRUE(gdb.has_said(kernel_rejects_sigtrap() ? ": 4322 hits in the kernel\n"
							  : "gdbserver evaluates all conditions: "),
		    "reply to monitor perf_bpf");
	EXPECT_TRUE(gdb.has_said("#1 ") && gdb.has_said(" in loop (n=5000, id=0)"), "backtrace");
	EXPECT_EQ(gdb.number_after("total "), 4999 * 5000, "total of the first run");
	EXPECT_EQ(gdb.number_after("total ", 1), 4999 * 5000, "total of the second run");
	expect_few_switches(gdb);
	expect_few_switches(gdb, 1);
	expect_translated(gdb);
}

void check_operands()
{
	Gdb gdb("break work if total > 2000000\n"
		"run loop 3000\n"
		"printf \"mark global %d\\n\", i\n"
		"delete\n"
		"break work if first.next->sum == 4000 && first.next->kind == 200\n"
		"continue\n"
		"printf \"mark member %d\\n\", i\n"
		"delete\n"
		"break work if (first.level < -2100 && i % 7 == 3) || last.name[1] == 'X'\n"
		"continue\n"
		"printf \"mark both %d\\n\", i\n"
		"delete\n"
		"break work if i == 2500\n"
		"break work if i == 2400\n"
		"continue\n"
		"printf \"mark any %d\\n\", i\n"
		"continue\n"
		"printf \"mark any %d\\n\", i\n"
		"delete\n"
		"break work if *(char *)&i == 7 && (unsigned char)i == 7 && (short)(i << 8) == "
		"1792\n"
		"continue\n"
		"printf \"mark cast %d\\n\", i\n"
		"delete\n"
		"continue\n"
		"break *in_registers if " STACK_POINTER " != 0 && " ARGUMENT " == 1234\n"
		"break in_registers if i == 1300\n"
		"run registers 3000\n"
		"printf \"mark register %d\\n\", i\n"
		"continue\n"
		"printf \"mark argument %d\\n\", i\n"
		"delete\n"
		"continue\n");

	gdb.expect_marks({ "global 1415", "member 2001", "both 2103", "any 2400", "any 2500",
			   "cast 2567", "register 1234", "argument 1300" });
	expect_few_switches(gdb);
	expect_translated(gdb);
}

void check_threads()
{
	/* At threads_wait(), eight threads exist, but the last one does not. */
	Gdb gdb("tbreak threads_wait\n"
		"run threads 1000\n"
		"break work if i == 500 && id == 5\n"
		"break work if i == 700 && id == 8\n"
		"continue\n"
		"printf \"mark thread %d %d\\n\", i, id\n"
		"continue\n"
		"printf \"mark thread %d %d\\n\", i, id\n"
		"continue\n"
		"delete\n"
		/* Each of the eight threads stops while the others are running. */
		"break work if i % 250 == 0 && id < 8\n"
		"run threads 1000\n"
		"set $stops = 0\n"
		"set $right = 0\n"
		"set $_exitcode = -1\n"
		"while $_exitcode == -1\n"
		"  set $stops = $stops + 1\n"
		"  set $right = $right + (i % 250 == 0)\n"
		"  continue\n"
		"end\n"
		"printf \"mark stops %d %d\\n\", $stops, $right\n"
		"set $_exitcode = -1\n"
		/* gdb removes the breakpoint while gdbserver has more hits to report. */
		"run threads 1000\n"
		"delete\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "thread 500 5", "thread 700 8", "stops 32 32", "exit 0" });
	EXPECT_FALSE(gdb.has_said("received signal SIGTRAP"), "SIGTRAP that gdb cannot explain");
	expect_few_switches(gdb);
	expect_translated(gdb);
}

/*
 * The child of posix_spawn(3) runs in the memory of its parent, and blocks all signals: gdbserver
 * must not leave a breakpoint there.
 */
void check_spawned()
{
	constexpr char to_the_end[] = "spawn: 9900";
	Gdb gdb("break work if i == 60 || i == 80\n"
		"run spawn 100\n"
		"printf \"mark parent %d\\n\", i\n"
		"continue\n"
		"printf \"mark parent %d\\n\", i\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n"
		"set follow-fork-mode child\n"
		"run spawn 100\n"
		"printf \"mark child %d\\n\", $_exitcode\n"
		/* Wait until the parent, which gdb has detached, has exited. */
		"shell while grep -qs 'gdb_[t]racee' /proc/[0-9]*/cmdline; do sleep 0.1; done\n");

	gdb.expect_marks({ "parent 60", "parent 80", "exit 0", "child 0" });
	EXPECT_EQ(gdb.times_said(to_the_end), 2, "processes that run to their end");
}

void check_processes()
{
	Gdb gdb("break work if i == 300\n"
		"run fork 1000\n"
		"printf \"mark parent %d %d\\n\", i, id\n"
		"continue\n"
		"set follow-fork-mode child\n"
		"run fork 1000\n"
		"printf \"mark child %d %d\\n\", i, id\n"
		"continue\n"
		"set follow-fork-mode parent\n"
		"set detach-on-fork off\n"
		"set schedule-multiple on\n"
		"run fork 1000\n"
		"printf \"mark of two %d\\n\", i\n"
		"continue\n"
		"printf \"mark of two %d\\n\", i\n"
		"kill inferiors 1 2 3 4\n"
		"inferior 1\n"
		"set detach-on-fork on\n"
		"set schedule-multiple off\n"
		"run exec 1000\n"
		"printf \"mark exec %d\\n\", i\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "parent 300 2", "child 300 1", "of two 300", "of two 300", "exec 300",
			   "exit 0" });
	/* In the first run gdb follows the parent, in the second the child. */
	EXPECT_EQ(gdb.times_said("child: exit 33"), 2, "children that run to their end");
	EXPECT_FALSE(gdb.has_said("child: signal"), "children that end by a signal");
	expect_translated(gdb);
}

/*
 * Returns whether @pid adds @more to the number at @address in time, or false at once if @pid is
 * gone.
 */
bool counts_up(pid_t pid, off_t address, long more)
{
	const Fd memory(
		open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
	const double end = seconds_now() + SECONDS_TO_TELL;
	long first = -1, number;

	while (pread(memory.get(), &number, sizeof(number), address) == sizeof(number) &&
	       seconds_now() < end) {
		if (first < 0)
			first = number;
		if (number > first + more)
			return true;
		usleep(100);
	}
	return false;
}

/* Attach, detach, attach again: while it is detached the tracee must not trap. */
void check_attach()
{
	Pipe go(0);
	Child tracee([] {
		const std::string path = file_of_own_folder("perf_bpf_gdb_tracee");

		execl(path.c_str(), path.c_str(), "loop", "10000000000", nullptr);
		return 127;
	});
	const std::string pid = std::to_string(tracee.pid());
	Gdb gdb("break work if i % 5000 == 1\n"
		"continue\n"
		"printf \"mark attached %d\\n\", i % 5000\n"
		"printf \"twice i is at %lu\\n\", &last.sum\n"
		"detach\n"
		"printf \"mark detached\\n\"\n"
		"shell read go </proc/self/fd/" +
			std::to_string(go.out.get()) +
			"\n"
			"attach " +
			pid +
			"\n"
			"continue\n"
			"printf \"mark again %d\\n\", i % 5000\n"
			"set stop_now = 1\n"
			"detach\n",
		"--attach " + pid);

	/* perf_bpf_gdb still runs, and does not know that gdb will attach again. */
	EXPECT_TRUE(gdb.await("mark detached\n"), "gdb lets the tracee go");
	EXPECT_TRUE(counts_up(tracee.pid(), gdb.number_after("twice i is at "), 2 * 3 * 5000),
		    "the tracee runs on where the condition holds");
	if (write(go.in.get(), "\n", 1) != 1)
		setup_failed("write", errno);
	gdb.expect_marks({ "attached 1", "detached", "again 1" });
	EXPECT_EQ(tracee.wait(), 0, "exit of the tracee");
	expect_translated(gdb);
}

void check_control()
{
	Gdb gdb("break work if i == 100\n"
		"run calls 4000\n"
		"printf \"mark stop %d\\n\", i\n"
		"next\n"
		"printf \"mark next %d\\n\", i\n"
		"stepi\n"
		"printf \"mark stepi %d\\n\", i\n"
		"finish\n"
		"printf \"mark finish %d\\n\", i\n"
		"next\n"
		"until\n"
		"printf \"mark until %d\\n\", result - total\n"
		"condition 1 i == 200\n"
		"continue\n"
		"printf \"mark condition %d\\n\", i\n"
		"condition 1 i >= 300\n"
		"ignore 1 3\n"
		"continue\n"
		"printf \"mark ignore %d\\n\", i\n"
		"disable 1\n"
		"tbreak work if i == 400\n"
		"continue\n"
		"printf \"mark tbreak %d\\n\", i\n"
		"enable 1\n"
		"condition 1 i % 100 == 0\n"
		"commands 1\n"
		"  silent\n"
		"  printf \"mark commands %d\\n\", i\n"
		"  continue\n"
		"end\n"
		"break work if i == 950\n"
		"continue\n"
		"printf \"mark second %d\\n\", i\n"
		/* "next" over a call, in which a condition would hold that is deleted. */
		"delete 1\n"
		"break call_work if i > 950\n"
		"continue\n"
		"printf \"mark outer %d\\n\", i\n"
		"next\n"
		"next\n"
		"printf \"mark over %d\\n\", i\n"
		"delete\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "stop 100", "next 100", "stepi 100", "finish 100", "until 1",
			   "condition 200", "ignore 303", "tbreak 400", "commands 500",
			   "commands 600", "commands 700", "commands 800", "commands 900",
			   "second 950", "outer 951", "over 951", "exit 0" });
	/* Neither rejected hits nor deleted breakpoints stop the tracee. */
	expect_few_switches(gdb);
	expect_translated(gdb);
}

void check_library()
{
	Gdb gdb("break in_library if i == 777\n"
		"run library 2000\n"
		"printf \"mark library %d\\n\", i\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "library 777", "exit 0" });
	expect_few_switches(gdb);
	expect_translated(gdb);
}

/* gdb interrupts a tracee whose hits are all rejected, and is then killed. */
void check_interrupt()
{
	Gdb gdb("break work if i == -1\n"
		"printf \"mark runs\\n\"\n"
		"run loop 10000000000\n"
		"printf \"mark interrupted %d\\n\", i > 0\n"
		"info inferiors\n"
		"printf \"mark runs again\\n\"\n"
		"continue\n");

	EXPECT_TRUE(gdb.await("main begins\n"), "gdb runs the tracee");
	sleep(2); /* let the tracee get into loop() or work(), which have an i */
	/* gdb asks its stub to stop the tracee. */
	kill(gdb.pid(), SIGINT);
	EXPECT_TRUE(gdb.await("mark runs again\n"), "gdb has the tracee stopped");

	const int tracee = gdb.number_after("process ");
	EXPECT_EQ(kill(tracee, 0), 0, "the tracee is there");
	kill(gdb.pid(), SIGKILL);

	bool gone = false;

	for (int tries = 0; tries < 1000 && !gone; tries++) {
		usleep(20'000);
		gone = kill(tracee, 0) && errno == ESRCH;
	}
	EXPECT_TRUE(gone, "gdbserver kills its program when gdb has died");
	gdb.expect_marks({ "runs", "interrupted 1", "runs again" });
	expect_translated(gdb);
}

/* Random C expressions on the operands of the tracee, without undefined behaviour. */
class Expressions {
public:
	explicit Expressions(uint64_t seed)
		: random_(seed)
	{
	}

	std::string next(int depth = 4)
	{
		if (depth == 0 || random_.one_in(6))
			return leaf();
		switch (random_.below(10)) {
		case 0:
			return random_.of({ "-", "~", "!" }) + side(depth);
		case 1: /* a narrower or wider number */
			return "(" +
			       std::string(random_.of({ "char", "unsigned char", "short",
							"unsigned short", "int", "unsigned int",
							"long", "unsigned long" })) +
			       ")" + side(depth);
		case 2: /* by an int: for others, gdb and its bytecode differ in the type */
			return side(depth) + random_.of({ " << ", " >> " }) + "((int)" +
			       side(depth) + " & 31)";
		case 3: /* no divisor of 0, and none of -1 */
			return both(depth, random_.of({ "/", "%" }),
				    random_.of({ " & 255 | 1", " & 254 | -256" }));
		case 4:
		case 5:
			return both(depth, random_.of({ "==", "!=", "<", ">", "<=", ">=" }));
		case 6:
			return both(depth, random_.of({ "&&", "||" }));
		default:
			return both(depth, random_.of({ "+", "-", "*", "&", "|", "^" }));
		}
	}

private:
	std::string side(int depth) { return "(" + next(depth - 1) + ")"; }
	std::string both(int depth, const char *op, const char *limit = "")
	{
		return side(depth) + " " + op + " (" + side(depth) + limit + ")";
	}

	std::string leaf()
	{
		if (random_.one_in(4))
			return std::to_string(random_.next() >> random_.of({ 40, 50, 60, 63 }));
		return random_.of({ "o->s8", "o->u8", "o->s16", "o->u16", "o->s32", "o->u32",
				    "o->s64", "o->u64", "operands.s8", "operands.u16",
				    "operands.s32", "operands.u64", "o->array[1]",
				    "o->array[o->u8 & 3]", "total", "*(short *)&o->s64", "(long)o",
				    "(long)" STACK_POINTER });
	}

	Random random_;
};

/*
 * At the first stage of the tracee gdb evaluates the expression; at the second stage a breakpoint
 * has it as its condition.
 */
void check_expressions()
{
	constexpr int NUMBER = 100;
	const uint64_t seed = nanoseconds_now();
	Expressions expressions(seed);
	std::string script = "break first_stage\nbreak second_stage\nrun rounds 1000000\n"
			     "set $held = 0\n";
	std::vector<std::string> tried;

	for (int i = 0; i < NUMBER; i++) {
		tried.push_back(expressions.next());
		script += "condition 2 " + tried.back() + "\n" + "set $holds = ((" + tried.back() +
			  ") != 0)\n" +
			  "set $held = $held + $holds\n"
			  "continue\n"
			  "info breakpoints 2\n"
			  "if $holds != (stage == 2)\n"
			  "  printf \"mark wrong " +
			  std::to_string(i) +
			  " %d\\n\", $holds\n"
			  "end\n"
			  "if stage == 2\n"
			  "  continue\n"
			  "end\n";
	}
	script += "printf \"mark done\\n\"\nprintf \"held: %d\\n\", $held\n"
		  "set stop_now = 1\ndelete\ncontinue\n";

	Gdb gdb(script);

	note("seed %llu", static_cast<unsigned long long>(seed));
	for (const std::string &mark : gdb.marks())
		if (int which, holds; sscanf(mark.c_str(), "wrong %d %d", &which, &holds) == 2)
			note("%s is %s", tried[which].c_str(), holds ? "true" : "false");
	gdb.expect_marks({ "done" });

	const int held = gdb.number_after("held: "), not_sent = gdb.times_said("(host evals)");

	/*
	 * gdb evaluates the condition again, so a hit that is accepted wrongly shows only as two
	 * context switches, for the stop and a step.
	 */
	if (kernel_rejects_sigtrap())
		EXPECT_LT(gdb.number_after("switches "),
			  2 * (NUMBER + held + not_sent) + NUMBER / 10, "stops of the tracee");
	/* gdb has no bytecode for some expressions, or limits the depth of their stack. */
	EXPECT_LT(not_sent, NUMBER / 10, "conditions that gdb does not send");
	EXPECT_GT(held, NUMBER / 10, "expressions that held");
	EXPECT_LT(held, NUMBER * 9 / 10, "expressions that held");
	expect_translated(gdb);
}

/* More conditions than slots, and breakpoints for which gdbserver needs slots. */
void check_slots()
{
	Gdb gdb("break work if i == 100\n"
		"break loop if n == 1\n"
		"break call_work if i == 110\n"
		"break run_rounds if n == 2\n"
		"break in_registers if i == 3\n"
		"break run_fork if n == 3\n"
		"run calls 1000\n"
		"printf \"mark work %d\\n\", i\n"
		"continue\n"
		"printf \"mark call_work %d\\n\", i\n"
		"watch first.level\n"
		"hbreak call_work if i == 112\n"
		"hbreak third_stage\n"
		"condition 1 i == 111\n"
		"ignore 7 1\n"
		"continue\n"
		"printf \"mark work %d\\n\", i\n"
		"continue\n"
		"printf \"mark watch %d\\n\", first.level\n"
		"disable 7\n"
		"continue\n"
		"printf \"mark call_work %d\\n\", i\n"
		"delete\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "work 100", "call_work 110", "work 111", "watch -111", "call_work 112",
			   "exit 0" });
	if (kernel_rejects_sigtrap())
		EXPECT_TRUE(gdb.has_said("it finds all debug registers in use"),
			    "message that gdbserver evaluates what is left");
}

/* The kernel forces the SIGTRAP of gdbserver's breakpoint instruction, but not that of an event. */
void check_blocked()
{
	Gdb gdb("break first_stage\n"
		"run blocked 1000\n"
		"break work if i == 500\n"
		"continue\n"
		"printf \"mark work %d\\n\", i\n"
		"delete\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "work 500", "exit 0" });
	if (kernel_rejects_sigtrap())
		EXPECT_TRUE(gdb.has_said("block SIGTRAP") || gdb.has_said("blocks SIGTRAP"),
			    "message that gdbserver evaluates the condition");
}

/* Like check_blocked(), but the thread starts after gdb has inserted the breakpoint. */
void check_blocked_later()
{
	if (!kernel_rejects_sigtrap())
		unavailable("perf_bpf_gdb passes on all conditions");

	Gdb gdb("break work if i == 500\n"
		"run blocked 1000\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	gdb.expect_marks({ "exit 0" });
	EXPECT_TRUE(gdb.has_said("does not stop, because it blocks SIGTRAP"),
		    "message that a thread has hit");
}

/* gdbserver starts the program, before gdb says "run". */
void check_program()
{
	Gdb gdb("break work if i == 4321\n"
		"continue\n"
		"printf \"mark program %d\\n\", i\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n",
		file_of_own_folder("perf_bpf_gdb_tracee") + " loop 5000");

	gdb.expect_marks({ "program 4321", "exit 0" });
	EXPECT_EQ(gdb.number_after("total "), 4999 * 5000, "total of the program");
	expect_few_switches(gdb);
	expect_translated(gdb);
}

static std::string status_of(pid_t pid, const std::string &name)
{
	return status_field("/proc/" + std::to_string(pid), name);
}

#ifdef __x86_64__
/* Traps if it is entered at its second byte, where the pc is after a breakpoint instruction. */
__attribute__((naked, noipa)) void visited()
{
	asm("movabs $0xcccccccccccccccc, %rax\n\tret");
}
#else
void visited()
{
	hit(0);
}
#endif

/* This process is gdb; perf_bpf_gdb is attached to a process that counts. */
class AttachedSession {
public:
	AttachedSession()
		: counter_(shared_with_children<std::atomic<long>>())
		, attached_([&] {
			for (;;) {
				counter_++;
				visited();
			}
			return 0;
		})
		, proxy_([&] { return exec(); })
	{
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		gdb_.there.close();
		errors_.in.close();
		send("!");
		await("$OK#9a");
		send_ack();
		gdbserver_ = atoi(status_of(attached_.pid(), "TracerPid").c_str());
		if (gdbserver_ <= 0)
			fail("expected that gdbserver traces the attached process, got no tracer");
	}

	pid_t attached() const { return attached_.pid(); }
	Child &proxy() { return proxy_; }
	void send(const std::string &data)
	{
		unsigned char sum = 0;
		char end[8];

		for (unsigned char byte : data)
			sum += byte;
		snprintf(end, sizeof(end), "#%02x", sum);
		send_bytes("$" + data + end);
	}
	void await(const std::string &text)
	{
		std::string said;
		char buffer[4096];

		while (said.find(text) == said.npos) {
			const ssize_t n = read(gdb_.here.get(), buffer, sizeof(buffer));

			if (n <= 0)
				fail("expected \"%s\" from gdbserver, got \"%s\"", text.c_str(),
				     said.c_str());
			said.append(buffer, n);
		}
	}
	void send_ack() { send_bytes("+"); }
	/* As if gdb died: nothing reads the messages any more. */
	void die()
	{
		gdb_.here.close();
		errors_.out.close();
	}
	/* Expects that gdbserver ends, and that the process runs without it. */
	void expect_continues()
	{
		constexpr int PATIENCE = 5;
		bool gone = false;

		/* gdbserver is a child of this process when perf_bpf_gdb has ended. */
		for (const double end = seconds_now() + PATIENCE; !gone && seconds_now() < end;) {
			gone = kill(gdbserver_, 0) ||
			       waitpid(gdbserver_, nullptr, WNOHANG) == gdbserver_;
			usleep(10'000);
		}
		EXPECT_TRUE(gone, "gdbserver ends with perf_bpf_gdb");
		if (!gone)
			kill(gdbserver_, SIGKILL);
		EXPECT_EQ(atoi(status_of(attached(), "TracerPid").c_str()), 0,
			  "tracer of the attached process");

		const long before = counter_;

		for (int tries = 0; counter_ == before && tries < 1000; tries++)
			usleep(1000);
		EXPECT_GT(counter_, before, "rounds of the attached process afterwards");
	}

private:
	int exec()
	{
		const std::string program = file_of_own_folder("perf_bpf_gdb"),
				  pid = std::to_string(attached());

		dup2(gdb_.there.get(), STDIN_FILENO);
		dup2(gdb_.there.get(), STDOUT_FILENO);
		dup2(errors_.in.get(), STDERR_FILENO);
		execl(program.c_str(), "perf_bpf_gdb", "--attach", pid.c_str(), nullptr);
		return 127;
	}
	void send_bytes(const std::string &bytes)
	{
		if (write(gdb_.here.get(), bytes.data(), bytes.size()) != ssize_t(bytes.size()))
			setup_failed("write", errno);
	}

	std::atomic<long> &counter_;
	Child attached_;
	SocketPair gdb_;
	Pipe errors_;
	Child proxy_;
	pid_t gdbserver_;
};

void check_killed()
{
	for (bool running : { false, true }) {
		AttachedSession session;

		if (running) {
			session.send("vCont;c");
			for (int tries = 0;
			     status_of(session.attached(), "State").starts_with('t') &&
			     tries < 1000;
			     tries++)
				usleep(1000);
		}
		kill(session.proxy().pid(), SIGKILL);
		EXPECT_STATUS(session.proxy().wait(), SIGKILL, "perf_bpf_gdb");
		session.expect_continues();
	}
}

/* At a breakpoint of gdbserver, the process has its old pc only after gdbserver has detached. */
void check_gdb_died()
{
	AttachedSession session;
	char insert[64], remove[64];

	snprintf(insert, sizeof(insert), "Z0,%lx,1", reinterpret_cast<unsigned long>(visited));
	snprintf(remove, sizeof(remove), "z%s", insert + 1);

	const std::pair<const char *, const char *> exchanges[] = {
		/* With swbreak+, gdbserver moves the pc back to the breakpoint. */
		{ "qSupported:swbreak+", "$PacketSize" },
		{ "?", "$T" },
		{ "Hgp0.0", "$OK" },
		{ insert, "$OK" },
		{ "vCont;c", "$T05" },
		{ remove, "$OK" }, /* as gdb does at each stop */
	};

	for (const auto &[request, reply] : exchanges) {
		session.send(request);
		session.await(reply);
		session.send_ack();
	}
	session.die();
	EXPECT_STATUS(session.proxy().wait(), 0, "perf_bpf_gdb");
	session.expect_continues();
}

/* gdb exits before it has sent a packet. */
void check_unused()
{
	const double end = seconds_now() + SECONDS / 2;
	bool left = true;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	{
		Child relay([] {
			const int nothing = open("/dev/null", O_RDWR);
			const std::string tracee = file_of_own_folder("perf_bpf_gdb_tracee"),
					  program = file_of_own_folder("perf_bpf_gdb");

			for (int fd : { STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO })
				dup2(nothing, fd);
			execl(program.c_str(), "perf_bpf_gdb", tracee.c_str(), "loop", "1",
			      nullptr);
			return 127;
		});

		EXPECT_STATUS(relay.wait(), 0, "perf_bpf_gdb");
	}
	/* This process is the subreaper of gdbserver and its program. */
	while (left && seconds_now() < end) {
		left = waitpid(-1, nullptr, WNOHANG) >= 0;
		usleep(10'000);
	}
	EXPECT_FALSE(left, "gdbserver or its program is still there");
}

/* gdb or gdbserver evaluates conditions that a BPF program cannot. */
void check_undecided()
{
	Gdb gdb("break work if fraction == 50.5\n"
		"run loop 1000\n"
		"printf \"mark float %d\\n\", i\n"
		"delete\n"
		"break work if 1000 / (i - 200) == 0 - 1000\n"
		"continue\n"
		"printf \"mark division %d\\n\", i\n"
		"continue\n"
		"printf \"mark division %d\\n\", i\n"
		"delete\n"
		"break work if i == 300 && $_gthread == 1\n"
		"continue\n"
		"printf \"mark variable %d\\n\", i\n"
		"delete\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n");

	/* At its entry, work() finds the previous call's value of "fraction". */
	gdb.expect_marks({ "float 102", "division 199", "division 200", "variable 300", "exit 0" });
	EXPECT_TRUE(gdb.has_said("Division by zero"), "gdb divides as well");

	/* gdbserver treats a condition that reads unmapped memory as false; gdb stops. */
	if (!kernel_rejects_sigtrap())
		return;

	Gdb reads("break work if i == 400 && *nowhere == 5\n"
		  "run loop 1000\n"
		  "printf \"mark memory %d\\n\", i\n"
		  "delete\n"
		  "continue\n"
		  "printf \"mark exit %d\\n\", $_exitcode\n");

	reads.expect_marks({ "memory 400", "exit 0" });
	EXPECT_TRUE(reads.has_said("Cannot access memory at address 0x0"), "gdb evaluates as well");
}

/* Without the right to load a program, perf_bpf_gdb passes all packets on. */
void check_rights()
{
	Gdb gdb("break work if i == 100\n"
		"run loop 300\n"
		"printf \"mark stop %d\\n\", i\n"
		"continue\n"
		"printf \"mark exit %d\\n\", $_exitcode\n",
		"", false);

	gdb.expect_marks({ "stop 100", "exit 0" });
	EXPECT_TRUE(gdb.has_said("perf_bpf_gdb: gdbserver evaluates all conditions: needs "),
		    "message that names the rights");
	EXPECT_TRUE(gdb.has_said("; run setcap cap_bpf,cap_perfmon+ep on perf_bpf_gdb as root"),
		    "message that says how to grant them");
	EXPECT_FALSE(gdb.has_said("gdbserver evaluates the condition"),
		     "conditions that are tried although the rights are missing");
}

const struct Session {
	const char *name, *says;
	void (*check)();
} sessions[] = {
	{ "arrival", "a conditional breakpoint of gdb stops once, at the right arrival",
	  check_arrival },
	{ "operands", "conditions read registers, locals, globals and memory behind pointers",
	  check_operands },
	{ "spawned",
	  "a process that starts programs runs to its end, whichever process gdb follows",
	  check_spawned },
	{ "threads", "a condition stops the thread in which it holds, even one that starts later",
	  check_threads },
	{ "processes", "conditions apply after fork and exec in the processes that gdb follows",
	  check_processes },
	{ "attach", "gdb attaches to a process twice, and the process continues after each detach",
	  check_attach },
	{ "control", "stepping, ignore counts, disabling, commands and deletion work as in gdb",
	  check_control },
	{ "library", "a condition is in force in a library that is loaded later", check_library },
	{ "expressions", "random conditions hold exactly where gdb says that they do",
	  check_expressions },
	{ "slots",
	  "when debug registers run out, gdbserver gets what is left and gdb its watchpoint",
	  check_slots },
	{ "undecided", "gdb or gdbserver evaluates a condition that a BPF program cannot evaluate",
	  check_undecided },
	{ "blocked", "a thread that blocks SIGTRAP stops where a condition holds", check_blocked },
	{ "blocked_later", "perf_bpf_gdb names a thread that hits but does not stop",
	  check_blocked_later },
	{ "unused", "no gdbserver is left behind if gdb goes away before it has connected",
	  check_unused },
	{ "program",
	  "a program that perf_bpf_gdb starts stops at its condition, with its arguments",
	  check_program },
	{ "killed", "if perf_bpf_gdb is killed, gdbserver exits, and the tracee continues",
	  check_killed },
	{ "died", "if gdb dies, the attached process continues, even from gdbserver's breakpoint",
	  check_gdb_died },
	{ "rights", "without the right to load a program gdb works as with gdbserver alone",
	  check_rights },
	{ "interrupt",
	  "Ctrl-C in gdb stops a tracee whose hits are rejected; the tracee ends if gdb is killed",
	  check_interrupt },
};

const bool added_sessions = [] {
	for (const Session &session : sessions)
		add_session(session.name, session.says, session.check);
	return true;
}();

} // namespace
