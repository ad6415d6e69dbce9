// SPDX-License-Identifier: GPL-2.0
/*
 * A proxy between gdb and gdbserver that turns the conditions of breakpoints into BPF programs: a
 * hit whose condition is false stops no thread.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "gdb/breakpoints.h"
#include "gdb/packet.h"
#include "gdb/registers.h"
#include "gdb/support.h"
#include "lib/args.h"
#include "lib/fail.h"
#include "lib/signals.h"

static const char usage[] =
	"usage: perf_bpf_gdb [PROGRAM [ARGUMENT...]]\n"
	"       perf_bpf_gdb --attach PID\n"
	"       perf_bpf_gdb --connect HOST:PORT\n"
	"       perf_bpf_gdb -- ARGUMENT-OF-GDBSERVER...\n"
	"Evaluates the conditions of gdb's breakpoints in the kernel. Use it in gdb as\n"
	"  (gdb) target extended-remote | perf_bpf_gdb PROGRAM\n"
	"It runs gdbserver, relays the packets between gdb and gdbserver, and turns the "
	"conditions\n"
	"of breakpoints into BPF programs. gdbserver evaluates those that cannot be translated.\n"
	"(gdb) monitor perf_bpf lists the conditions in the kernel, and how often each was hit.\n"
	"  --attach PID         debugs a running process\n"
	"  --connect HOST:PORT  uses a gdbserver that is running on this machine\n"
	"  -h, --help           this text\n"
	"  --version            the version\n";

/* Prints on stderr, which gdb shows to its user. One write(2), as gdbserver prints there, too. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	static constexpr char name[] = "perf_bpf_gdb: ";
	char line[1024];
	va_list args;

	memcpy(line, name, sizeof(name));
	va_start(args, format);
	vsnprintf(line + strlen(name), sizeof(line) - sizeof(name), format, args);
	va_end(args);
	strcat(line, "\n");
	fputs(line, stderr);
}

namespace {

/* "p1f.2a": a process, and a thread of it; without multiprocess+ only the latter, and -1 is any. */
std::optional<pid_t> process_of(std::string_view thread)
{
	Text text(thread);

	if (!text.skip("p"))
		return {};

	const std::optional<uint64_t> pid = text.hex();

	return pid && *pid > 0 && *pid <= INT32_MAX ? std::optional<pid_t>(*pid) : std::nullopt;
}

/* A Z packet: "Z0,ADDRESS,KIND;X3,220127". */
struct PlaceRequest {
	Place place;
	std::vector<std::string> conditions; /* bytecode */
	bool more = false; /* has commands for the stub, or something unknown */
};

std::optional<PlaceRequest> parse_place(std::string_view request, pid_t pid)
{
	PlaceRequest parsed = {};
	Text text(request.substr(1));

	if (text.empty() || text.rest()[0] < '0' || text.rest()[0] > '4')
		return {};
	parsed.place.pid = pid;
	parsed.place.type = text.rest()[0];
	text.skip(text.rest().substr(0, 1));
	if (!text.skip(","))
		return {};

	const std::optional<uint64_t> address = text.hex();

	if (!address || !text.skip(","))
		return {};

	const std::optional<uint64_t> kind = text.hex();

	if (!kind)
		return {};
	parsed.place.address = *address;
	parsed.place.kind = *kind;
	while (text.skip(";"), text.skip("X")) {
		const std::optional<uint64_t> size = text.hex();
		std::optional<std::string> bytes;

		if (size && text.skip(","))
			bytes = text.bytes(*size);
		if (!bytes) {
			parsed.more = true;
			return parsed;
		}
		parsed.conditions.push_back(std::move(*bytes));
	}
	parsed.more = !text.empty();
	return parsed;
}

/* gdbserver's report of a thread that has stopped: "T05thread:p1f.1f;10:...;". */
struct Stop {
	explicit Stop(std::string_view reply);

	std::map<std::string_view, std::string_view> fields;
	bool trap = false, explained = false;

	std::string_view field(std::string_view name) const
	{
		const auto found = fields.find(name);

		return found == fields.end() ? "" : found->second;
	}
};

Stop::Stop(std::string_view reply)
{
	static constexpr std::string_view no_reasons[] = { "thread", "core" };
	Text text(reply);

	trap = text.skip("T05");
	if (!trap)
		text = Text(reply.substr(std::min<size_t>(3, reply.size())));
	while (!text.empty()) {
		Text field(text.until(';'));
		const std::string_view name = field.until(':');

		fields[name] = field.rest();
		/* A hexadecimal name is the number of a register. */
		Text number(name);

		explained |= !(number.hex() && number.empty()) &&
			     std::find(std::begin(no_reasons), std::end(no_reasons), name) ==
				     std::end(no_reasons);
	}
}

/* Milliseconds to wait for a side that does not read the last packets of the other one. */
constexpr int PATIENCE = 1000;
/* Milliseconds after SIGIO, until the SIGTRAP is pending in a thread that blocks it. */
constexpr int LOOK_AGAIN = 100;

/*
 * SIGIO reports an accepted hit. SIGTERM and SIGHUP end the session as if gdb had exited: if they
 * terminated perf_bpf_gdb at once, it would not wait for gdbserver.
 */
Fd signals_fd()
{
	const sigset_t set = set_of({ SIGIO, SIGTERM, SIGHUP });

	sigprocmask(SIG_BLOCK, &set, nullptr);
	return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

class Proxy {
public:
	/*
	 * @missing: why gdbserver evaluates all conditions, or nothing. @socket_of_server: see
	 * Breakpoints.
	 */
	Proxy(Connection gdb, Connection server, const std::string &missing,
	      std::function<ino_t()> socket_of_server)
		: gdb_(std::move(gdb))
		, server_(std::move(server))
		, signals_(signals_fd())
		, filters_(missing.empty())
		, missing_(missing)
		, breakpoints_(std::move(socket_of_server))
	{
	}

	/*
	 * Relays packets until one side is gone; then the other side gets the packets that are
	 * left, if it reads. Returns the exit code.
	 */
	int run()
	{
		while (pass_on())
			;
		for (Connection *side : { &gdb_, &server_ }) {
			pollfd ready = { side->out(), POLLOUT, 0 };

			while (side->has_output() && poll(&ready, 1, PATIENCE) > 0)
				side->write_some();
		}
		return exit_code_;
	}

private:
	bool pass_on();
	bool gives_up(const Connection &side, const char *name);
	void from_gdb(const Packet &packet);
	void from_server(const Packet &packet);

	void ask_server(const std::string &request, bool for_gdb = true);
	void send_asked();
	std::string insert(const std::string &request);
	bool remove(const std::string &request);
	void remove_from_child(const Place &place);
	void before(const std::string &request);
	void after(const std::string &request, const std::string &reply);
	void make_current(pid_t pid);
	void not_taken(const std::string &request);
	void vforked(pid_t parent, pid_t child);
	bool report(const std::string &request);
	bool refuse_detach(const std::string &request);
	bool signalled();
	void look_for_threads_that_do_not_stop();
	/* Returns the reply for gdb. @request: what gdbserver replies to, if it is known. */
	std::string stopped(std::string reply, std::string_view request = "");

	struct Request {
		std::string data;
		bool for_gdb; /* else it is from perf_bpf_gdb, which drops the reply */
	};

	Connection gdb_, server_;
	const Fd signals_;
	bool look_again_ =
		false; /* after SIGIO: the SIGTRAP comes when the thread leaves the kernel */
	bool unexplained_hit_ =
		false; /* a SIGIO has come since the last stop that is known to be a hit */
	const bool filters_;
	const std::string missing_;
	std::deque<Request> asked_; /* gdbserver has not replied yet */
	size_t sent_ = 0; /* the number of requests in asked_ that gdbserver has got */
	Breakpoints breakpoints_;
	pid_t current_ = 0; /* the process that Z packets are for, if it is known */
	bool non_stop_ = false, knows_hwbreak_ = false;
	std::string description_; /* of the current process, as far as gdb has read it */
	std::set<std::string> refused_; /* requests for which a message was printed */
	std::set<pid_t> not_stopped_; /* threads for which a message was printed */
	int exit_code_ = 0;
};

/* Waits, and relays some packets. Returns false when one side is gone. */
bool Proxy::pass_on()
{
	const auto output = [](const Connection &side) {
		return pollfd{ side.has_output() ? side.out() : -1, POLLOUT, 0 };
	};
	pollfd fds[] = { { gdb_.in(), POLLIN, 0 },
			 { server_.in(), POLLIN, 0 },
			 output(gdb_),
			 output(server_),
			 { signals_.get(), POLLIN, 0 } };
	const int ready = poll(fds, std::size(fds), look_again_ ? LOOK_AGAIN : -1);

	if (ready < 0)
		return errno == EINTR;
	if ((fds[4].revents || (look_again_ && !ready)) && !signalled())
		return false;
	if (fds[2].revents)
		gdb_.write_some();
	if (fds[3].revents)
		server_.write_some();
	if (fds[1].revents && !server_.receive())
		return false;
	while (std::optional<Packet> packet = server_.next())
		from_server(*packet);
	if (fds[0].revents && !gdb_.receive())
		return false;
	while (std::optional<Packet> packet = gdb_.next())
		from_gdb(*packet);
	return !gives_up(gdb_, "gdb") && !gives_up(server_, "gdbserver");
}

bool Proxy::gives_up(const Connection &side, const char *name)
{
	if (side.overlong())
		say("%s has sent a packet of more than %zu bytes; the session ends", name,
		    Framing::LONGEST);
	else if (side.stuck())
		say("%s does not read: more than %zu bytes wait for it; the session ends", name,
		    Framing::LONGEST);
	else
		return false;
	exit_code_ = 1;
	return true;
}

/* Returns false if a signal ends the session. */
bool Proxy::signalled()
{
	signalfd_siginfo info;

	look_again_ = read(signals_.get(), &info, sizeof(info)) > 0;
	unexplained_hit_ |= look_again_;
	if (look_again_ && info.ssi_signo != SIGIO)
		return false;
	look_for_threads_that_do_not_stop();
	return true;
}

void Proxy::look_for_threads_that_do_not_stop()
{
	for (pid_t tid : breakpoints_.threads_that_do_not_stop())
		if (not_stopped_.insert(tid).second)
			say("thread %d has hit a breakpoint whose condition holds, but does not "
			    "stop, because it blocks SIGTRAP; use \"set breakpoint "
			    "condition-evaluation host\"",
			    tid);
}

void Proxy::ask_server(const std::string &request, bool for_gdb)
{
	/* gdbserver does not reply to these two. */
	if (request == "k" || request.starts_with("R")) {
		server_.send(request);
		return;
	}
	asked_.push_back({ request, for_gdb });
	send_asked();
}

/*
 * With acknowledgements, gdbserver drops what it receives between its reply and the acknowledgement
 * of that. gdb waits for the reply; so the next request waits for the reply to one of ours.
 */
void Proxy::send_asked()
{
	while (sent_ < asked_.size() && (!sent_ || asked_[sent_ - 1].for_gdb))
		server_.send(asked_[sent_++].data);
}

void Proxy::from_gdb(const Packet &packet)
{
	const std::string &request = packet.data;

	if (packet.kind != Packet::NORMAL) {
		server_.send(packet);
		return;
	}
	/*
	 * gdb sends a packet again if it gets no acknowledgement for "remotetimeout", which the
	 * measurements at the start exceed on a slow machine. gdb acknowledges each reply, so it
	 * has no reply to the first one yet, and expects only one.
	 */
	if (packet.again)
		return;
	if (filters_) {
		const std::string reply = request.starts_with("Z") ? insert(request)
					  : remove(request)	   ? "OK"
								   : "";

		if (!reply.empty()) {
			gdb_.send(reply);
			return;
		}
	}
	if (report(request) || refuse_detach(request))
		return;
	before(request);
	ask_server(request);
}

/* Returns the reply for gdb, or nothing if gdbserver must get the request. */
std::string Proxy::insert(const std::string &request)
{
	const std::optional<PlaceRequest> parsed = parse_place(request, current_);

	if (!parsed || !current_)
		return "";

	const Place &place = parsed->place;

	remove_from_child(place);
	if (!parsed->conditions.empty() && !parsed->more && place.type <= '1' &&
	    !breakpoints_.in_gdbserver(place)) {
		const std::string why = breakpoints_.insert(place, request, parsed->conditions);

		if (why.empty())
			return "OK";
		if (breakpoints_.in_memory_of_parent(place)) {
			say("process %d has no breakpoint at 0x%llx until it executes a program: "
			    "it %s",
			    place.pid, static_cast<unsigned long long>(place.address), why.c_str());
			return "OK";
		}
		if (refused_.insert(request).second)
			say("gdbserver evaluates the condition at 0x%llx: it %s",
			    static_cast<unsigned long long>(place.address), why.c_str());
	}
	breakpoints_.drop(place);

	const auto given_up = breakpoints_.make_room(place);

	if (!given_up)
		return "E01";
	for (const std::string &each : *given_up)
		ask_server(each, false);
	return "";
}

void Proxy::make_current(pid_t pid)
{
	if (!current_)
		breakpoints_.name_first(pid);
	current_ = pid;
}

/* Replies to gdb's "monitor perf_bpf", which gdbserver does not know. */
bool Proxy::report(const std::string &request)
{
	std::string output = "O";
	Text text(request);

	if (!text.skip("qRcmd,") || text.bytes(text.rest().size() / 2) != "perf_bpf")
		return false;
	for (unsigned char byte :
	     filters_ ? breakpoints_.report()
		      : "gdbserver evaluates all conditions: " + missing_ + "\n") {
		char digits[3];

		snprintf(digits, sizeof(digits), "%02x", byte);
		output += digits;
	}
	gdb_.send(output);
	gdb_.send("OK");
	return true;
}

/* A thread that does not stop keeps its SIGTRAP, which terminates a process without a tracer. */
bool Proxy::refuse_detach(const std::string &request)
{
	Text text(request);
	std::optional<uint64_t> pid;

	if (text.skip("D;"))
		pid = text.hex();
	else if (request != "D")
		return false;

	const std::set<pid_t> threads = breakpoints_.threads_that_do_not_stop(pid.value_or(0));

	if (threads.empty())
		return false;
	say("cannot detach now: a SIGTRAP is pending in thread %d, and would terminate the "
	    "process; continue until the thread stops",
	    *threads.begin());
	gdb_.send("E01");
	return true;
}

bool Proxy::remove(const std::string &request)
{
	if (!request.starts_with("z"))
		return false;

	const std::optional<PlaceRequest> parsed = parse_place(request, current_);

	if (!parsed)
		return false;
	remove_from_child(parsed->place);
	return breakpoints_.remove(parsed->place);
}

/*
 * When the process was forked, gdbserver may have had the breakpoint, and the child has a copy of
 * its instruction: gdb learns of the fork later.
 */
void Proxy::remove_from_child(const Place &place)
{
	char request[64];

	if (!breakpoints_.is_of_parent(place))
		return;
	snprintf(request, sizeof(request), "z%c,%llx,%llx", place.type,
		 static_cast<unsigned long long>(place.address),
		 static_cast<unsigned long long>(place.kind));
	ask_server(request, false);
}

/* Whether a request lets threads run, and steps none. */
static bool continues(std::string_view request)
{
	return (request.starts_with("vCont;c") || request.starts_with("vCont;C") ||
		request.starts_with("c") || request.starts_with("C")) &&
	       request.find(";s") == request.npos && request.find(";S") == request.npos;
}

/*
 * Closes the breakpoints of a process that a request detaches or kills, before gdbserver gets the
 * request: a detached thread must not trap.
 */
void Proxy::before(const std::string &request)
{
	Text text(request);

	if (text.skip("D;") || text.skip("vKill;")) {
		if (const std::optional<uint64_t> pid = text.hex())
			breakpoints_.forget(*pid);
	} else if (request == "D" || request == "k" || request.starts_with("R")) {
		breakpoints_.forget_all();
	} else if (continues(request)) {
		breakpoints_.continued();
	} else if (text.skip("qSupported:")) {
		knows_hwbreak_ = text.rest().find("hwbreak+") != text.rest().npos;
	}
}

/* Follows what gdbserver has done. */
void Proxy::after(const std::string &request, const std::string &reply)
{
	Text text(request);
	const bool ok = reply == "OK";

	if (text.skip("QStartNoAckMode") && ok) {
		gdb_.stop_acks();
		server_.stop_acks();
	} else if (text.skip("QNonStop:") && ok) {
		non_stop_ = text.rest() == "1";
	} else if (text.skip("Hg") && ok) {
		if (const std::optional<pid_t> pid = process_of(text.rest()))
			make_current(*pid);
	} else if (text.skip("qXfer:features:read:")) {
		const std::string_view annex = text.until(':');

		if (annex == "target.xml" && text.skip("0,"))
			description_.clear();
		if (reply.starts_with("m") || reply.starts_with("l"))
			description_ += plain(reply).substr(1);
		breakpoints_.describe(current_, description_);
	} else if (request.starts_with("Z") || request.starts_with("z")) {
		const std::optional<PlaceRequest> parsed = parse_place(request, current_);

		if (parsed && request[0] == 'Z' && ok)
			breakpoints_.gdbserver_has(parsed->place);
		else if (parsed && request[0] == 'z')
			breakpoints_.gdbserver_lacks(parsed->place);
	}
}

/*
 * While gdbserver steps through a range of addresses, it does not report a SIGTRAP in that range,
 * unless it has inserted a breakpoint at pc itself. So that hits of filters are reported, gdb must
 * step by single instructions.
 */
static std::string without_range_steps(const std::string &actions)
{
	std::string kept;

	for (Text text(actions); !text.rest().empty();)
		if (const std::string_view action = text.until(';'); action != "r")
			kept += (kept.empty() ? "" : ";") + std::string(action);
	return kept;
}

/* gdbserver has refused a breakpoint that make_room() gave up, and that gdb believes inserted. */
void Proxy::not_taken(const std::string &request)
{
	const std::optional<PlaceRequest> parsed = parse_place(request, current_);

	if (!parsed)
		return;
	breakpoints_.gdbserver_lacks(parsed->place);
	say("the breakpoint at 0x%llx is lost, because gdbserver cannot insert it",
	    static_cast<unsigned long long>(parsed->place.address));
}

/* gdbserver replies when a thread has stopped; in non-stop mode some replies are "OK" instead. */
static bool awaits_stop(std::string_view request)
{
	static constexpr std::string_view begins[] = { "?",	"c",	    "C",
						       "s",	"S",	    "vCont;",
						       "vRun;", "vAttach;", "vStopped" };

	return std::any_of(std::begin(begins), std::end(begins),
			   [&](auto begin) { return request.starts_with(begin); });
}

void Proxy::from_server(const Packet &packet)
{
	const std::string &reply = packet.data;

	if (packet.kind == Packet::NOTIFICATION) {
		Text text(reply);

		gdb_.send(Packet{ packet.kind, text.skip("Stop:")
						       ? "Stop:" + stopped(std::string(text.rest()))
						       : reply });
		return;
	}
	/* The output of the program or of a monitor command precedes the reply. */
	if (asked_.empty() || (reply.starts_with("O") && reply != "OK")) {
		gdb_.send(packet);
		return;
	}

	const Request request = std::move(asked_.front());

	asked_.pop_front();
	sent_--;
	send_asked();
	if (!request.for_gdb && request.data.starts_with("Z") && reply != "OK")
		not_taken(request.data);
	if (request.for_gdb && awaits_stop(request.data))
		gdb_.send(stopped(reply, request.data));
	else if (request.for_gdb && filters_ && request.data == "vCont?")
		gdb_.send(without_range_steps(plain(reply)));
	else if (request.for_gdb)
		gdb_.send(reply);
	after(request.data, reply);
}

/*
 * Until it executes a program, the child runs in the memory of its parent. gdb assumes that it has
 * all breakpoints of the parent, so they are opened on the child as well.
 */
void Proxy::vforked(pid_t parent, pid_t child)
{
	for (const std::string &request : breakpoints_.vforked(parent, child)) {
		const std::optional<PlaceRequest> parsed = parse_place(request, child);

		if (parsed)
			breakpoints_.insert(parsed->place, request, parsed->conditions);
	}
}

std::string Proxy::stopped(std::string reply, std::string_view request)
{
	const std::string text = plain(reply);

	if (text.starts_with("W") || text.starts_with("X")) {
		Text exit(text);

		exit.until(';');
		if (const auto pid = exit.skip("process:") ? exit.hex() : std::nullopt)
			breakpoints_.forget(*pid);
		return reply;
	}
	if (!text.starts_with("T"))
		return reply;

	const Stop stop(text);
	const std::optional<pid_t> pid = process_of(stop.field("thread"));

	if (!pid)
		return reply;
	if (!non_stop_)
		make_current(*pid);
	if (const std::optional<pid_t> child = process_of(stop.field("fork")))
		breakpoints_.forked(*pid, *child);
	if (const std::optional<pid_t> child = process_of(stop.field("vfork")))
		vforked(*pid, *child);
	if (stop.fields.contains("exec"))
		breakpoints_.forget(*pid);

	/*
	 * When several threads hit at the same time, gdbserver reports one stop and keeps the
	 * others. gdb may remove the breakpoint before it receives those, and then reports a
	 * SIGTRAP of the program, unless the stub says that a breakpoint was hit.
	 */
	const std::optional<uint64_t> pc_number = breakpoints_.registers_of(*pid).pc();

	if (stop.trap && !stop.explained && knows_hwbreak_ && pc_number) {
		char number[17];
		uint64_t pc = 0;

		snprintf(number, sizeof(number), "%02llx",
			 static_cast<unsigned long long>(*pc_number));

		const std::optional<std::string> value = Text(stop.field(number)).bytes(sizeof(pc));

		if (!value)
			return reply;
		memcpy(&pc, value->data(), sizeof(pc));
		if (breakpoints_.may_have_hit(*pid, pc)) {
			unexplained_hit_ = false;
			return "T05hwbreak:;" + text.substr(3);
		}
		/* Else it is a SIGTRAP of the program. */
		if (continues(request) && unexplained_hit_)
			say("the SIGTRAP at 0x%llx may be of a hit for which the thread did not "
			    "stop, because it blocked SIGTRAP",
			    static_cast<unsigned long long>(pc));
	}
	return reply;
}

/*
 * gdbserver. With --once it exits when its input is closed, except while it waits for a running
 * program; without --once it would try to read more in a loop.
 */
class Gdbserver {
public:
	/* @socket is its standard input and output. */
	void run(int socket, std::vector<std::string> arguments);
	~Gdbserver() { end(); }
	/*
	 * Waits until gdbserver exits, and kills it if it does not. Returns its exit code, or 0 if
	 * it has none.
	 */
	int end();

private:
	pid_t pid_ = -1;
};

int Gdbserver::end()
{
	constexpr int STEP = 10, FOR_ITSELF = 3000, AFTER_KILL = 1000; /* ms */

	for (int waited = 0; pid_ > 0 && waited < FOR_ITSELF + AFTER_KILL; waited += STEP) {
		int status = 0;

		if (waitpid(pid_, &status, WNOHANG)) {
			pid_ = -1;
			return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
		}
		if (waited == FOR_ITSELF)
			kill(pid_, SIGKILL);
		usleep(1000 * STEP);
	}
	return 0;
}

void Gdbserver::run(int socket, std::vector<std::string> arguments)
{
	const pid_t parent = getpid();
	std::vector<char *> argv;

	pid_ = fork();
	if (pid_ < 0)
		say("fork: %s", errno_name(errno).c_str());
	if (pid_)
		return;
	/*
	 * If perf_bpf_gdb is killed, ~Gdbserver() does not run. A program that gdbserver has
	 * started ends with it (PTRACE_O_EXITKILL); one that it has attached to runs on.
	 */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	dup2(socket, STDIN_FILENO);
	dup2(socket, STDOUT_FILENO);
	/*
	 * SIGPIPE remains ignored, as for a gdbserver that gdb runs: when gdb has died, gdbserver
	 * must detach although nothing reads its messages.
	 */
	arguments.insert(arguments.begin(), { "gdbserver", "--once" });
	for (std::string &argument : arguments)
		argv.push_back(argument.data());
	argv.push_back(nullptr);
	execvp(argv[0], argv.data());
	say("cannot run gdbserver (%s); install it", errno_name(errno).c_str());
	_exit(127);
}

/* Returns an errno, or 0. */
int connected(Fd &socket, const sockaddr *address, socklen_t size)
{
	socket = Fd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
	return socket.valid() && !connect(socket.get(), address, size) ? 0 : errno;
}

/*
 * To "HOST:PORT" or "[HOST]:PORT", an address of this machine: resolving a name requires libraries
 * that a static program lacks.
 */
Fd connect_to(const std::string &place)
{
	const size_t colon = place.rfind(':');
	std::string host = place.substr(0, colon);
	const int port = colon == place.npos ? 0 : atoi(place.c_str() + colon + 1);
	sockaddr_in v4 = {};
	sockaddr_in6 v6 = {};
	Fd socket;
	int err = 0;

	v4.sin_family = AF_INET;
	v6.sin6_family = AF_INET6;
	v4.sin_port = v6.sin6_port = htons(port);
	if (host.starts_with("[") && host.ends_with("]"))
		host = host.substr(1, host.size() - 2);
	else if (host.empty() || host == "localhost")
		host = "127.0.0.1";
	if (port < 1 || port > 65535) {
		say("--connect %s: no port; give HOST:PORT", place.c_str());
	} else if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
		err = connected(socket, reinterpret_cast<sockaddr *>(&v4), sizeof(v4));
	} else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
		err = connected(socket, reinterpret_cast<sockaddr *>(&v6), sizeof(v6));
	} else {
		say("--connect %s: %s is not an address; give one of this machine, or localhost",
		    place.c_str(), host.c_str());
	}
	if (!err)
		return socket;
	say("--connect %s: %s; start gdbserver on this machine first", place.c_str(),
	    errno_name(err).c_str());
	return Fd();
}

/*
 * The inode of the other end of a TCP connection within this machine: proc(5), /proc/net/tcp. 0 if
 * there is none here. It has an inode from the time on when the peer has accepted it.
 */
ino_t peer_of(int socket)
{
	sockaddr_in6 here = {}, there = {}; /* sockaddr_in has its port at the same offset */
	socklen_t here_size = sizeof(here), there_size = sizeof(there);

	if (getsockname(socket, reinterpret_cast<sockaddr *>(&here), &here_size) ||
	    getpeername(socket, reinterpret_cast<sockaddr *>(&there), &there_size))
		return 0;
	for (const char *file : { "/proc/net/tcp", "/proc/net/tcp6" }) {
		std::ifstream connections(file);

		for (std::string line; std::getline(connections, line);) {
			unsigned int local, remote;
			unsigned long inode;

			if (sscanf(line.c_str(),
				   "%*s %*[0-9A-F]:%x %*[0-9A-F]:%x %*s %*s %*s %*s %*s %*s %lu",
				   &local, &remote, &inode) == 3 &&
			    local == ntohs(there.sin6_port) && remote == ntohs(here.sin6_port))
				return inode;
		}
	}
	return 0;
}

/*
 * Returns @code. gdb reads the message on stderr only if it can send its first packet, so wait
 * until it has given up.
 */
int refused(int code)
{
	constexpr int MILLISECONDS = 1000;
	pollfd gdb = { STDIN_FILENO, POLLIN, 0 };
	char packet[256];

	close(STDOUT_FILENO);
	while (poll(&gdb, 1, MILLISECONDS) > 0 && read(gdb.fd, packet, sizeof(packet)) > 0)
		;
	return code;
}

bool is_number(const std::string &text)
{
	return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

} // namespace

int main(int argc, char **argv)
{
	const std::vector<std::string> arguments(argv + 1, argv + argc);
	const std::string first = arguments.empty() ? "" : arguments[0];
	const std::vector<std::string> rest(arguments.begin() + !arguments.empty(),
					    arguments.end());
	std::vector<std::string> for_gdbserver;
	Fd server;
	std::function<ino_t()> socket_of_server;

	if (first == "-h" || first == "--help") {
		fputs(usage, stdout);
		return 0;
	}
	if (first == "--version") {
		print_version();
		return 0;
	}
	if (isatty(STDIN_FILENO)) {
		say("stdin is a terminal; run (gdb) target extended-remote | perf_bpf_gdb ...");
		return 2;
	}
	if (first == "--attach" && rest.size() == 1 && is_number(rest[0])) {
		for_gdbserver = { "--attach", "-", rest[0] };
	} else if (first == "--attach") {
		say("--attach requires one process id");
		return refused(2);
	} else if (first == "--") {
		for_gdbserver = rest;
	} else if (first.empty()) {
		for_gdbserver = { "--multi", "-" };
	} else if (!first.starts_with("-")) {
		for_gdbserver = arguments;
		for_gdbserver.insert(for_gdbserver.begin(), "-");
	} else if (first != "--connect" || rest.size() != 1) {
		say("unknown arguments from %s on (try --help)", first.c_str());
		return refused(2);
	}
	/* gdbserver's two names for its standard input and output. */
	if (first == "--" && std::none_of(rest.begin(), rest.end(), [](const std::string &each) {
		    return each == "-" || each == "stdio";
	    })) {
		say("-- requires arguments for gdbserver, and one of them must be -");
		return refused(2);
	}

	Gdbserver process;

	/* Reading shows that a side is gone. */
	signal(SIGPIPE, SIG_IGN);
	if (first == "--connect") {
		server = connect_to(rest[0]);
		if (!server.valid())
			return refused(1);
		socket_of_server = [fd = server.get()] { return peer_of(fd); };
	} else {
		SocketPair pair;
		struct stat there = {};

		fstat(pair.there.get(), &there);
		socket_of_server = [inode = there.st_ino] { return inode; };
		process.run(pair.there.get(), for_gdbserver);
		server = std::move(pair.here);
	}

	const std::string missing = missing_support();

	if (!missing.empty())
		say("gdbserver evaluates all conditions: %s", missing.c_str());
	else if (may_lose_hits())
		say("this kernel may lose hits whose condition holds, while other tasks are in "
		    "bpf()");

	int code;

	{
		Fd server_out(fcntl(server.get(), F_DUPFD_CLOEXEC, 0));
		Proxy proxy(Connection(Fd(dup(STDIN_FILENO)), Fd(dup(STDOUT_FILENO))),
			    Connection(std::move(server), std::move(server_out)), missing,
			    std::move(socket_of_server));

		code = proxy.run();
		/* Close the breakpoints, and the connection, whose end gdbserver waits for. */
	}
	return code ? code : process.end();
}
