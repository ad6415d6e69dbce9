// SPDX-License-Identifier: GPL-2.0
/*
 * perf_bpf_gdb with the test as both gdb and gdbserver: which packets it passes on, and which it
 * survives.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "lib/clock.h"
#include "lib/compat.h"
#include "lib/ptrace.h"
#include "lib/random.h"
#include "tests/common.h"

namespace {

std::string framed(const std::string &data, char begin = '$')
{
	uint8_t sum = 0;
	char end[4];

	for (char c : data)
		sum += c;
	snprintf(end, sizeof(end), "#%02x", sum);
	return begin + data + end;
}

std::string hex(const std::string &bytes)
{
	std::string text;
	char two[3];

	for (uint8_t byte : bytes) {
		snprintf(two, sizeof(two), "%02x", byte);
		text += two;
	}
	return text;
}

/* A port of this machine that listens: in a guest the loopback device is down at first. */
class Listener {
public:
	explicit Listener(int family)
		: family_(family)
		, socket_(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0))
	{
		sockaddr_in v4 = {};
		sockaddr_in6 v6 = {};
		const bool is_v4 = family == AF_INET;
		sockaddr *const address = is_v4 ? reinterpret_cast<sockaddr *>(&v4)
						: reinterpret_cast<sockaddr *>(&v6);
		socklen_t size = is_v4 ? sizeof(v4) : sizeof(v6);
		ifreq loopback = {};
		const timeval patience = { 10, 0 }; /* of accept4(2), too */

		if (!socket_.valid())
			unavailable("the kernel has no sockets of this family");
		strcpy(loopback.ifr_name, "lo");
		loopback.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
		ioctl(socket_.get(), SIOCSIFFLAGS, &loopback);
		address->sa_family = family;
		v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		v6.sin6_addr = in6addr_loopback;
		setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		if (bind(socket_.get(), address, size) || listen(socket_.get(), 1) ||
		    getsockname(socket_.get(), address, &size))
			setup_failed("listen", errno);
		port_ = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
	}

	std::string place() const
	{
		return (family_ == AF_INET ? "localhost:" : "[::1]:") + std::to_string(port_);
	}
	Fd wait_for_peer() { return Fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)); }

private:
	int family_;
	Fd socket_;
	int port_;
};

int times(const std::string &text, const std::string &part)
{
	int n = 0;

	for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size())
		n++;
	return n;
}

class Between {
public:
	explicit Between(int family = AF_INET)
		: listener_(family)
		, proxy_([&] {
			const std::string name = file_of_own_folder("perf_bpf_gdb"),
					  place = listener_.place();

			dup2(gdb_.there.get(), STDIN_FILENO);
			dup2(gdb_.there.get(), STDOUT_FILENO);
			dup2(errors_.in.get(), STDERR_FILENO);
			execl(name.c_str(), name.c_str(), "--connect", place.c_str(), nullptr);
			return 127;
		})
	{
		gdb_.there.close();
		errors_.in.close();
		server_ = listener_.wait_for_peer();
		if (!server_.valid())
			fail("expected perf_bpf_gdb to connect to %s, got %s",
			     listener_.place().c_str(), errno_name(errno).c_str());
		for (const Fd *fd : { &gdb_.here, &server_ }) {
			const timeval patience = { 10, 0 };

			setsockopt(fd->get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
		}
	}

	void as_gdb(const std::string &bytes) { send(gdb_.here, bytes); }
	void as_server(const std::string &bytes) { send(server_, bytes); }
	void gdb_gets(const std::string &wanted, CallSite site = CallSite::of_call())
	{
		gets(gdb_.here, wanted, "bytes for gdb", site);
	}
	void server_gets(const std::string &wanted, CallSite site = CallSite::of_call())
	{
		gets(server_, wanted, "bytes for gdbserver", site);
	}
	/* gdb's request and gdbserver's reply, in no-ack mode. */
	void exchange(const std::string &request, const std::string &reply,
		      CallSite site = CallSite::of_call())
	{
		as_gdb(framed(request));
		server_gets(framed(request), site);
		as_server(framed(reply));
		gdb_gets(framed(reply), site);
	}
	void stop_acks()
	{
		as_gdb(framed("QStartNoAckMode"));
		gdb_gets("+");
		server_gets(framed("QStartNoAckMode"));
		as_server("+" + framed("OK"));
		server_gets("+");
		gdb_gets(framed("OK"));
		as_gdb("+");
	}
	/* Waits for bytes, and returns whether they are for gdb. */
	bool gdb_is_next()
	{
		pollfd fds[] = { { gdb_.here.get(), POLLIN, 0 }, { server_.get(), POLLIN, 0 } };

		return poll(fds, 2, 10'000) > 0 && fds[0].revents;
	}
	/* Returns the bytes that arrive until a pause of @milliseconds. */
	std::string take_for_gdb(int milliseconds) { return take(gdb_.here, milliseconds); }
	std::string take_for_server(int milliseconds) { return take(server_, milliseconds); }
	/* The server sends @bytes, and perf_bpf_gdb ends with a message in the middle of them. */
	void gives_up(const std::string &bytes, const std::string &message)
	{
		::send(server_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
		EXPECT_STATUS(proxy_.wait(), 1 << 8, "perf_bpf_gdb gives up");
		EXPECT_EQ(times(take(errors_.out, 1000),
				"perf_bpf_gdb: " + message + "; the session ends\n"),
			  1, "messages that say why");
	}
	/* perf_bpf_gdb gets a signal, and ends the session. */
	void ended_by(int sig)
	{
		kill(proxy_.pid(), sig);
		EXPECT_STATUS(proxy_.wait(), 0, "perf_bpf_gdb after a signal");
		EXPECT_EQ(take(server_, 1000).size(), 0, "bytes for gdbserver before the end");
	}
	/* gdb exits. Returns what perf_bpf_gdb has printed on stderr. */
	std::string end()
	{
		gdb_.here.close();
		EXPECT_EQ(proxy_.wait(), 0, "exit of perf_bpf_gdb");
		return take(errors_.out, 1000);
	}

private:
	static void send(const Fd &fd, const std::string &bytes)
	{
		const ssize_t sent = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);

		if (sent != ssize_t(bytes.size()))
			fail("expected perf_bpf_gdb to read %zu bytes, got %zd", bytes.size(),
			     sent);
	}
	static std::string take(const Fd &fd, int milliseconds, size_t most = SIZE_MAX)
	{
		pollfd ready = { fd.get(), POLLIN, 0 };
		std::string taken;
		char buffer[4096];

		while (taken.size() < most && poll(&ready, 1, milliseconds) > 0) {
			const ssize_t n = read(fd.get(), buffer,
					       std::min(sizeof(buffer), most - taken.size()));

			if (n <= 0)
				break;
			taken.append(buffer, n);
		}
		return taken;
	}
	static void gets(const Fd &fd, const std::string &wanted, const char *what, CallSite site)
	{
		const std::string got = take(fd, 10'000, wanted.size());

		if (got != wanted)
			expected(wanted, got, what, site.file, site.line);
	}

	Listener listener_;
	SocketPair gdb_;
	Pipe errors_;
	Fd server_;
	Child proxy_;
};

/* gdbserver's report of a process that has stopped. */
std::string stop_of(pid_t pid)
{
	char text[64];

	snprintf(text, sizeof(text), "T11thread:p%x.%x;core:0;", pid, pid); /* by SIGSTOP */
	return text;
}

/* The beginning of gdbserver's target description. */
std::string description()
{
	std::string text = "l<target><architecture>";

#ifdef __x86_64__
	text += "i386:x86-64</architecture>";
	for (const char *name :
	     { "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11",
	       "r12", "r13", "r14", "r15", "rip", "eflags", "cs" })
		text += std::string("<reg name=\"") + name + "\" bitsize=\"64\"/>";
#else
	text += "aarch64</architecture>";
	for (int i = 0; i < 31; i++)
		text += "<reg name=\"x" + std::to_string(i) + "\" bitsize=\"64\"/>";
	text += "<reg name=\"sp\" bitsize=\"64\"/><reg name=\"pc\" bitsize=\"64\"/>";
#endif
	return text + "</target>";
}

/* A process that is traced and stopped, so that it can have conditions. */
Child stopped_process()
{
	return Child([] {
		ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
		raise(SIGSTOP);
		return 0;
	});
}

/* Another one: it hits with SIGTRAP blocked, and stops before it unblocks it. */
Child process_that_blocks_sigtrap()
{
	return Child([] {
		const sigset_t trap = set_of({ SIGTRAP });

		ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
		raise(SIGSTOP);
		sigprocmask(SIG_BLOCK, &trap, nullptr);
		hit(0);
		raise(SIGSTOP);
		sigprocmask(SIG_UNBLOCK, &trap, nullptr);
		return 0;
	});
}

void need_rejected_sigtrap()
{
	if (!kernel_rejects_sigtrap())
		unavailable("the kernel sends SIGTRAP for rejected hits, so perf_bpf_gdb takes no "
			    "condition");
}

void get_ready(Between &between, pid_t pid)
{
	between.stop_acks();
	between.exchange("qSupported:multiprocess+;hwbreak+",
			 "PacketSize=3fff;ConditionalBreakpoints+");
	between.exchange("qXfer:features:read:target.xml:0,ffb", description());
	between.exchange("?", stop_of(pid));
}

TEST("packets.pass", "C1", "perf_bpf_gdb passes on what it does not understand, byte by byte")
{
	Between between;
	const std::string binary = framed(std::string("X1000,5:}\x03}\x04\x00\xff\x80", 14));

	between.as_gdb("+" + framed("qSupported:multiprocess+;swbreak+"));
	between.gdb_gets("+");
	between.server_gets(framed("qSupported:multiprocess+;swbreak+"));
	between.as_server("+" + framed("PacketSize=3fff"));
	between.server_gets("+");
	between.gdb_gets(framed("PacketSize=3fff"));

	between.as_gdb("-"); /* gdb asks for it again */
	between.gdb_gets(framed("PacketSize=3fff"));
	between.as_gdb("+$m1000,4#00"); /* a wrong checksum */
	between.gdb_gets("-");
	between.as_gdb("$m10" + framed("m1000,4")); /* gdb has begun a packet again */
	between.gdb_gets("+");
	between.server_gets(framed("m1000,4"));
	between.as_server("+" + framed("0*\"1* 2"));
	between.server_gets("+");
	between.gdb_gets(framed("0*\"1* 2"));
	between.as_gdb("+");
	between.as_server(framed("Stop:T05thread:p1.1;", '%'));
	between.gdb_gets(framed("Stop:T05thread:p1.1;", '%'));

	between.stop_acks();
	for (char c : binary)
		between.as_gdb(std::string(1, c));
	between.server_gets(binary);
	between.as_server(framed("OK"));
	between.gdb_gets(framed("OK"));
	between.as_gdb(framed("vCont;c:p1.-1") + "\x03");
	between.server_gets(framed("vCont;c:p1.-1") + "\x03");
	between.as_server(framed("O6869") + framed("T02thread:p1.1;"));
	between.gdb_gets(framed("O6869") + framed("T02thread:p1.1;"));
	for (const char *request :
	     { "Z0,401000,1", "z0,401000,1", "Z1,401000,1", "Z2,401000,8", "Z0,", "Z9,1,1", "Z",
	       "z", "Z0,401000,1;X3,2201", "Z0,401000,1;cmds:0,X1,27", "vMustReplyEmpty", "" })
		between.exchange(request, "");
	EXPECT_EQ(between.take_for_gdb(0).size() + between.take_for_server(0).size(), 0,
		  "bytes that no side has sent");
	between.end();
}

TEST("packets.flood", "C1",
     "perf_bpf_gdb reads from gdb and gdbserver while neither of them reads from it")
{
	/* More than a socket buffers and less than perf_bpf_gdb does, and more than that. */
	constexpr size_t MUCH = 600'000, TOO_MUCH = 3'000'000;
	const std::string notification = framed("Stop:T02thread:p1.1;", '%');
	std::string requests, notifications;
	Between between;

	between.stop_acks();
	while (notifications.size() < MUCH)
		notifications += notification;
	for (int i = 0; requests.size() < MUCH; i++)
		requests += framed("m" + std::to_string(i) + ",400");
	between.as_server(notifications);
	between.as_gdb(requests);
	between.server_gets(requests);
	between.gdb_gets(notifications);
	between.end();

	Between never_ends, never_reads;

	never_ends.gives_up("$" + std::string(TOO_MUCH, 'm'),
			    "gdbserver has sent a packet of more than 1048576 bytes");
	while (notifications.size() < TOO_MUCH)
		notifications += notification;
	never_reads.gives_up(notifications,
			     "gdb does not read: more than 1048576 bytes wait for it");
}

/* It stops before each hit, so that the test can change the condition in between. */
Child process_that_hits()
{
	return Child([] {
		ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
		for (;;) {
			raise(SIGSTOP);
			hit(0);
		}
		return 0;
	});
}

/* Bytecode, and what becomes of it. gdb compiles hardly any condition to these. */
struct Bytecode {
	const char *what;
	std::string hex; /* with spaces */
	enum Fate { ACCEPTS, REJECTS, PASSED_ON } fate;
};

/* 22 is const8, 16 ext, 13 equal, 27 end. A negative number is an extended byte. */
const Bytecode bytecodes[] = {
	{ "-7 / 2 == -3", "22f91608 2202 05 22fd1608 13 27", Bytecode::ACCEPTS },
	{ "7 / -2 == -3", "2207 22fe1608 05 22fd1608 13 27", Bytecode::ACCEPTS },
	{ "-7 / -2 == 3", "22f91608 22fe1608 05 2203 13 27", Bytecode::ACCEPTS },
	{ "-7 % 3 == -1", "22f91608 2203 07 22ff1608 13 27", Bytecode::ACCEPTS },
	{ "7 % -3 == 1", "2207 22fd1608 07 2201 13 27", Bytecode::ACCEPTS },
	{ "-7 % -3 == -1", "22f91608 22fd1608 07 22ff1608 13 27", Bytecode::ACCEPTS },
	{ "-7 % 10 == 9, unsigned", "22f91608 220a 08 2209 13 27", Bytecode::ACCEPTS },
	{ "-7 / 10 < 0, unsigned", "22f91608 220a 06 2200 14 27", Bytecode::REJECTS },
	{ "1 / 0 == 99", "2201 2200 05 2263 13 27", Bytecode::ACCEPTS },
	{ "1 / 0 == 99, unsigned", "2201 2200 06 2263 13 27", Bytecode::ACCEPTS },
	{ "1 % 0 == 99", "2201 2200 07 2263 13 27", Bytecode::ACCEPTS },
	{ "1 % 0 == 99, unsigned", "2201 2200 08 2263 13 27", Bytecode::ACCEPTS },
	{ "1 << 63 < 0", "2201 223f 09 2200 14 27", Bytecode::ACCEPTS },
	{ "1 << 63 == 99", "2201 223f 09 2263 13 27", Bytecode::REJECTS },
	{ "1 << 64 == 99", "2201 2240 09 2263 13 27", Bytecode::ACCEPTS },
	{ "1 >> 64 == 99", "2201 2240 0a 2263 13 27", Bytecode::ACCEPTS },
	{ "1 >> 64 == 99, unsigned", "2201 2240 0b 2263 13 27", Bytecode::ACCEPTS },
	{ "1 << -1 == 99", "2201 22ff1608 09 2263 13 27", Bytecode::ACCEPTS },
	{ "-1 < 1", "22ff1608 2201 14 27", Bytecode::ACCEPTS },
	{ "-1 < 1, unsigned", "22ff1608 2201 15 27", Bytecode::REJECTS },
	{ "1 < 1, unsigned", "2201 2201 15 27", Bytecode::REJECTS },
	{ "-1 >> 63 == 1, unsigned", "22ff1608 223f 0b 2201 13 27", Bytecode::ACCEPTS },
	{ "4000000010 == 4000000010, 32 and 64 bits", "24ee6b280a 2500000000ee6b280a 13 27",
	  Bytecode::ACCEPTS },
	{ "the smallest number / -1 == itself", "2201 223f 09 28 22ff1608 05 13 27",
	  Bytecode::ACCEPTS },
	{ "7 5 duplicated is 7 5 5", "2207 2205 28 02 220a 13 27", Bytecode::ACCEPTS },
	{ "5 7 popped is 5", "2205 2207 29 2205 13 27", Bytecode::ACCEPTS },
	{ "1 2 5 rotated is 5 1 2", "2201 2202 2205 33 03 04 22fb1608 13 27", Bytecode::ACCEPTS },
	{ "7 2 swapped is 2 7", "2207 2202 2b 03 22fb1608 13 27", Bytecode::ACCEPTS },
	{ "1 of 9 2 picked is 9", "2209 2202 3201 03 04 22c11608 13 27", Bytecode::ACCEPTS },
	{ "a jump over 0", "2201 210007 2200 27", Bytecode::ACCEPTS },
	{ "0 does not jump", "2200 200008 2201 27 2200 27", Bytecode::ACCEPTS },
	{ "1 jumps", "2201 200008 2201 27 2200 27", Bytecode::REJECTS },
	{ "0 before a jump is the result", "2200 200008 2200 27 2201 27", Bytecode::REJECTS },
	{ "no end", "2201", Bytecode::PASSED_ON },
	{ "a jump into an operand", "2201 200006 2201 27", Bytecode::PASSED_ON },
	{ "a loop of three rounds", "2203 2201 03 28 200002 0e 27", Bytecode::PASSED_ON },
	{ "a jump to itself", "210000", Bytecode::PASSED_ON },
	{ "a jump to the start", "2201 200000 2201", Bytecode::PASSED_ON },
	{ "a float", "0127", Bytecode::PASSED_ON },
	{ "a register that has no place in the context", "26003827", Bytecode::PASSED_ON },
};

/* The sum of @number ones, all on the stack at first, the last of them as !0. */
std::string sum_of_ones(int number)
{
	std::string bytes;

	for (int i = 1; i < number; i++)
		bytes += "2201";
	bytes += "22000e";
	for (int i = 1; i < number; i++)
		bytes += "02";
	return bytes + "22" + hex(std::string(1, number)) + "1327";
}

/* @place is a packet of gdb without its first letter. */
void check_bytecode(Between &between, pid_t pid, const std::string &place, const Bytecode &bytecode)
{
	const std::string remove = std::string("z") + place;
	std::string bytes = bytecode.hex, insert;
	char size[24];

	std::erase(bytes, ' ');
	snprintf(size, sizeof(size), "%zx", bytes.size() / 2);
	insert = std::string("Z") + place + ";X" + size + "," + bytes;
	if (bytecode.fate == Bytecode::PASSED_ON) {
		between.exchange(insert, "OK");
		between.exchange(remove, "OK");
		return;
	}
	between.as_gdb(framed(insert));
	between.gdb_gets(framed("OK"));
	ptrace(PTRACE_CONT, pid, nullptr, nullptr);

	const int status = wait_for(pid);
	const bool accepts = WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;

	EXPECT_VALUE(accepts, bytecode.fate == Bytecode::ACCEPTS, bytecode.what);
	between.as_gdb(framed(remove));
	between.gdb_gets(framed("OK"));
	if (accepts) {
		ptrace(PTRACE_CONT, pid, nullptr, nullptr);
		wait_for(pid);
	}
}

TEST("packets.condition", "C1",
     "gdbserver gets no packets for a condition that becomes a BPF program")
{
	need_rejected_sigtrap();

	Child process = process_that_hits();
	Between between;
	char place[64], pid[16];

	wait_for(process.pid());
	get_ready(between, process.pid());
	snprintf(place, sizeof(place), "0,%lx,1", reinterpret_cast<unsigned long>(hit));
	snprintf(pid, sizeof(pid), "%x", process.pid());

	const std::string insert = std::string("Z") + place, remove = std::string("z") + place,
			  holds = insert + ";X3,220127", other = insert + ";X3,220027";

	for (const std::string &request : { holds, remove, holds, other, remove, remove }) {
		between.as_gdb(framed(request));
		between.gdb_gets(framed("OK"));
	}
	between.as_gdb(framed("vCont?"));
	between.server_gets(framed("vCont?"));
	between.as_server(framed("vCont;c;C;t;s;S;r"));
	between.gdb_gets(framed("vCont;c;C;t;s;S"));
	/* gdbserver gets a breakpoint without a condition, and keeps it when gdb adds one. */
	between.exchange(insert, "OK");
	between.exchange(holds, "OK");
	between.exchange(remove, "OK");
	between.as_gdb(framed(holds));
	between.gdb_gets(framed("OK"));
	for (const Bytecode &bytecode : bytecodes)
		check_bytecode(between, process.pid(), place, bytecode);
	for (int number : { 60, 61, 80 })
		check_bytecode(between, process.pid(), place,
			       { "sum of ones", sum_of_ones(number),
				 number > 60 ? Bytecode::PASSED_ON : Bytecode::ACCEPTS });
	/* perf_bpf_gdb forgets the breakpoints of a detached process. */
	between.as_gdb(framed(holds));
	between.gdb_gets(framed("OK"));
	between.exchange(std::string("D;") + pid, "OK");
	between.exchange(remove, "OK");
	EXPECT_EQ(between.take_for_server(0).size(), 0,
		  "bytes for gdbserver that gdb has not sent");

	const std::string errors = between.end();

	EXPECT_EQ(errors.find("refused by the kernel"), errors.npos, "place of a refusal");
}

TEST("packets.refused", "C1", "gdbserver gets a condition that the kernel does not load")
{
	need_rejected_sigtrap();

	/* Each "rotate" takes six BPF instructions, and a program can have a million. */
	constexpr int ROTATIONS = 200000;
	Child process = stopped_process();
	Between between;
	std::string rotations, too_long;
	char begin[64];

	wait_for(process.pid());
	get_ready(between, process.pid());
	for (int i = 0; i < ROTATIONS; i++)
		rotations += "33";
	snprintf(begin, sizeof(begin), "Z0,%lx,1;X%x,220122022203",
		 reinterpret_cast<unsigned long>(hit), ROTATIONS + 7);
	too_long = begin + rotations + "27";
	between.exchange(too_long, "OK");

	const std::string errors = between.end();

	EXPECT_TRUE(errors.find("is refused by the kernel: E2BIG") != errors.npos,
		    "the reason on standard error");
}

/* gdb's packet for hit() without its first letter. */
std::string place_of_hit()
{
	char place[64];

	snprintf(place, sizeof(place), "0,%lx,1", reinterpret_cast<unsigned long>(hit));
	return place;
}

std::string hg(pid_t pid)
{
	char request[64];

	snprintf(request, sizeof(request), "Hgp%x.%x", pid, pid);
	return request;
}

/* perf_bpf_gdb replies to @request itself. */
void is_program(Between &between, const std::string &request, CallSite site = CallSite::of_call())
{
	between.as_gdb(framed(request));
	between.gdb_gets(framed("OK"), site);
}

#ifdef __x86_64__
TEST("packets.slots", "C1",
     "perf_bpf_gdb gives up conditions for as many slots as a watchpoint takes")
{
	need_rejected_sigtrap();

	constexpr int CONDITIONS = 3;
	static uint64_t words[2];
	Child process = stopped_process();
	Between between;
	std::string inserted[CONDITIONS];
	char watch[2][64];

	process.wait();
	get_ready(between, process.pid());
	for (int i = 0; i < CONDITIONS; i++) {
		char request[64];

		snprintf(request, sizeof(request), "Z0,%lx,1;X3,220127",
			 reinterpret_cast<uintptr_t>(hit) + i);
		inserted[i] = framed(request);
		between.as_gdb(inserted[i]);
		between.gdb_gets(framed("OK"));
	}
	/* 8 aligned bytes take one slot; at an address that is only a multiple of 4, two. */
	for (int i = 0; i < 2; i++)
		snprintf(watch[i], sizeof(watch[i]), "2,%lx,8",
			 reinterpret_cast<uintptr_t>(words) + 4 * i);
	between.exchange(std::string("Z") + watch[0], "OK");
	between.exchange(std::string("z") + watch[0], "OK");
	/* One request at a time: with acknowledgements gdbserver would drop the second one. */
	between.as_gdb(framed(std::string("Z") + watch[1]));
	between.server_gets(inserted[0]);
	EXPECT_EQ(between.take_for_server(100).size(), 0, "bytes before gdbserver has replied");
	between.as_server(framed("OK"));
	between.server_gets(framed(std::string("Z") + watch[1]));
	between.as_server(framed("OK"));
	between.gdb_gets(framed("OK"));
	between.end();
}

/* gdbserver would fail later, when it writes the debug registers, and kill the process. */
TEST("packets.slots.full", "C1",
     "gdb gets an error if a watchpoint needs more slots than perf_bpf_gdb can give up")
{
	need_rejected_sigtrap();

	static uint64_t words[4];
	Child process = stopped_process();
	Between between;
	std::string software, hardware;
	char watch[64];

	process.wait();
	get_ready(between, process.pid());
	software = "0," + place_of_hit().substr(2);
	hardware = "1," + place_of_hit().substr(2);
	snprintf(watch, sizeof(watch), "2,%lx,20",
		 reinterpret_cast<uintptr_t>(words)); /* 32 bytes */
	is_program(between, "Z" + hardware + ";X3,220127");
	between.as_gdb(framed(std::string("Z") + watch));
	between.gdb_gets(framed("E01"));
	is_program(between, "z" + hardware);
	/* A software breakpoint can be given up, and a deleted one is closed. */
	is_program(between, "Z" + software + ";X3,220127");
	between.as_gdb(framed(std::string("Z") + watch));
	between.server_gets(framed("Z" + software + ";X3,220127"));
	between.as_server(framed("OK"));
	between.server_gets(framed(std::string("Z") + watch));
	between.as_server(framed("OK"));
	between.gdb_gets(framed("OK"));
	between.end();
}

TEST("packets.slots.used", "C1",
     "perf_bpf_gdb closes deleted breakpoints if others than gdb use the debug registers")
{
	need_rejected_sigtrap();

	Child process = stopped_process();
	Between between;
	std::vector<Fd> events;
	std::string places[3];

	process.wait();
	get_ready(between, process.pid());
	for (int i = 0; i < 3; i++) {
		char place[64];

		snprintf(place, sizeof(place), "0,%lx,1", reinterpret_cast<uintptr_t>(hit) + i);
		places[i] = place;
	}
	for (int i = 0; i < 2; i++) {
		events.push_back(open_event(breakpoint(hit), process.pid()));
		if (!events.back().valid())
			setup_failed("perf_event_open", errno);
	}
	for (int i = 0; i < 2; i++)
		is_program(between, "Z" + places[i] + ";X3,220127");
	is_program(between, "z" + places[0]);
	between.exchange("vCont;c", stop_of(process.pid()));
	is_program(between, "Z" + places[2] + ";X3,220127");
	EXPECT_EQ(between.take_for_server(100).size(), 0, "bytes for gdbserver");
	between.end();
}

/* gdb does not remove breakpoints from a library that the program unloads. */
TEST("packets.unloaded", "C1",
     "gdbserver does not get the breakpoint of an unloaded library, which would change data")
{
	need_rejected_sigtrap();

	constexpr int CONDITIONS = 3;
	const size_t page = sysconf(_SC_PAGESIZE);
	static uint64_t word;
	const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
	void *at = mmap(nullptr, page, PROT_READ, MAP_PRIVATE, file.get(), 0);
	Child process([&] {
		ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
		raise(SIGSTOP);
		munmap(at, page);
		raise(SIGSTOP);
		return 0;
	});
	Between between;
	char request[64];

	if (at == MAP_FAILED)
		setup_failed("mmap", errno);
	process.wait();
	get_ready(between, process.pid());
	snprintf(request, sizeof(request), "Z0,%lx,1;X3,220127", reinterpret_cast<uintptr_t>(at));
	is_program(between, request);
	for (int i = 0; i < CONDITIONS; i++) {
		snprintf(request, sizeof(request), "Z0,%lx,1;X3,220127",
			 reinterpret_cast<uintptr_t>(hit) + i);
		is_program(between, request);
	}
	ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
	process.wait();
	snprintf(request, sizeof(request), "Z2,%lx,8", reinterpret_cast<uintptr_t>(&word));
	between.exchange(request, "OK");
	between.end();
}
#endif

TEST("packets.fork", "C1",
     "gdbserver removes a breakpoint from a child that was forked while gdbserver had it")
{
	need_rejected_sigtrap();

	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	Child parent = stopped_process(), child = stopped_process();
	Between between;
	char fork[128];

	parent.wait();
	child.wait();
	get_ready(between, parent.pid());
	is_program(between, condition);
	snprintf(fork, sizeof(fork), "T05fork:p%x.%x;thread:p%x.%x;", child.pid(), child.pid(),
		 parent.pid(), parent.pid());
	between.exchange("vCont;c", fork);
	between.exchange(hg(child.pid()), "OK");
	/* gdb removes it before it detaches, or inserts it again. */
	for (const std::string &request : { "z" + place_of_hit(), condition }) {
		is_program(between, request);
		between.server_gets(framed("z" + place_of_hit()));
		between.as_server(framed("E01"));
	}
	is_program(between, "z" + place_of_hit());
	EXPECT_EQ(between.take_for_server(100).size(), 0, "bytes for gdbserver");
	EXPECT_EQ(between.end().find("is lost"), std::string::npos, "place of a message");
}

/* Prints its seed, whether the test passes or fails. */
Random seeded()
{
	const uint64_t seed = nanoseconds_now();

	note("seed %llu", static_cast<unsigned long long>(seed));
	return Random(seed);
}

/* Random operations, whose operands are valid most of the time. */
std::string random_bytecode(Random &random)
{
	std::string bytes;

	for (int i = random.below(40); i >= 0; i--) {
		const uint8_t op = random.one_in(30)  ? random.next()
				   : random.one_in(2) ? 0x22
						      : 2 + random.below(0x32);

		bytes += char(op);
		switch (op) {
		case 0x16: /* ext, zero_ext */
		case 0x2a:
			bytes += char(random.one_in(20) ? random.next() : 1 + random.below(64));
			break;
		case 0x20: /* if_goto, goto */
		case 0x21:
			bytes += char(0);
			bytes += char(bytes.size() + random.below(12));
			break;
		case 0x22: /* const8 */
		case 0x32: /* pick */
			bytes += char(random.below(8));
			break;
		case 0x23:
		case 0x24:
		case 0x25:
			for (int n = 1 << (op - 0x22); n; n--)
				bytes += char(random.next());
			break;
		case 0x26: /* reg */
			bytes += char(0);
			bytes += char(random.below(20));
			break;
		}
	}
	return bytes + char(0x27);
}

TEST("packets.bytecode", "C1",
     "the kernel accepts each BPF program that is translated from random bytecode")
{
	constexpr int NUMBER = 500, AT_LEAST = 150;
	constexpr double SECONDS = 8; /* the verifier is slow on an emulated CPU */
	need_rejected_sigtrap();

	Child process = stopped_process();
	Between between;
	Random random = seeded();
	int taken = 0, passed = 0;
	char place[64];

	wait_for(process.pid());
	get_ready(between, process.pid());
	for (const double end = seconds_now() + SECONDS;
	     taken + passed < AT_LEAST || (taken + passed < NUMBER && seconds_now() < end);) {
		const std::string bytes = random_bytecode(random);
		std::string request;

		snprintf(place, sizeof(place), "0,%lx,1;X%zx,",
			 reinterpret_cast<unsigned long>(hit), bytes.size());
		request = std::string("Z") + place + hex(bytes);
		between.as_gdb(framed(request));
		/* perf_bpf_gdb either replies itself or passes it on. */
		if (between.gdb_is_next()) {
			between.gdb_gets(framed("OK"));
			taken++;
		} else {
			between.server_gets(framed(request));
			between.as_server(framed("E01"));
			between.gdb_gets(framed("E01"));
			passed++;
		}
	}

	const std::string errors = between.end();

	note("%d taken, %d passed on", taken, passed);
	EXPECT_GT(taken, 0, "conditions that became programs");
	EXPECT_GT(passed, 0, "conditions left to gdbserver");
	EXPECT_EQ(errors.find("refused by the kernel"), errors.npos, "place of a refusal");
}

TEST("packets.malformed", "C1", "perf_bpf_gdb survives malformed packets from both sides")
{
	static const char *const samples[] = {
		"Z0,401000,1;X3,220127",
		"z0,401000,1",
		"qXfer:features:read:target.xml:0,ffb",
		"QStartNoAckMode",
		"Hgp1.1",
		"D;1",
		"vKill;1",
		"QNonStop:1",
		"vCont;c",
		"?",
		"OK",
		"T05thread:p1.1;10:00104000* ;fork:p2.2;",
		"W00;process:1",
		"l<target><reg name=\"rax\"",
		"T05exec:2f;",
		"O41",
		"m}*",
		"E01",
		"Z1,ffffffffffffffff,fffffffffffffffff;X",
	};
	constexpr int NUMBER = 4000;
	constexpr double SECONDS = 8;
	Random random = seeded();
	Between between;

	const double end = seconds_now() + SECONDS;

	for (int i = 0; i < NUMBER && seconds_now() < end; i++) {
		std::string bytes = framed(random.of(samples), random.one_in(20) ? '%' : '$');

		for (int changes = random.below(4); changes; changes--) {
			const size_t at = random.below(bytes.size());

			if (random.one_in(2))
				bytes[at] = random.one_in(2)
						    ? random.next()
						    : random.of({ '*', '}', '$', '#', ';', ':' });
			else
				bytes.insert(at, 1, bytes[random.below(bytes.size())]);
		}
		if (random.one_in(2))
			between.as_gdb(bytes);
		else
			between.as_server(bytes);
		between.take_for_gdb(0);
		between.take_for_server(0);
	}
	/* Complete the packet that was begun last, and see that another one passes. */
	for (int i = 0; i < 2; i++) {
		between.as_gdb("#00" + framed("qC"));
		between.as_server("#00" + framed("qC"));
	}

	std::string last;

	for (int tries = 0; tries < 100 && last.find(framed("qC")) == last.npos; tries++)
		last += between.take_for_server(100);
	EXPECT_TRUE(last.find(framed("qC")) != last.npos, "a packet passes after all that");
	between.end();
}

const std::string i386 = "l<target><architecture>i386</architecture><reg name=\"eax\"/>"
			 "<reg name=\"ecx\"/></target>";

TEST("packets.description", "C1",
     "perf_bpf_gdb uses the target description of the process to which a condition belongs")
{
	need_rejected_sigtrap();

	const std::string condition = "Z" + place_of_hit() + ";X3,220127",
			  xfer = "qXfer:features:read:target.xml:0,ffb";
	Child first = stopped_process(), other = stopped_process(), third = stopped_process();
	Between between;
	char fork[128];

	for (Child *process : { &first, &other, &third })
		process->wait();
	get_ready(between, first.pid());
	between.exchange(hg(other.pid()), "OK");
	between.exchange(condition, "OK"); /* its description is not read yet */
	between.exchange(xfer, i386);
	between.exchange(condition, "OK");
	between.exchange(hg(first.pid()), "OK");
	is_program(between, condition);
	/* gdb does not read the description of a forked process. */
	snprintf(fork, sizeof(fork), "T05fork:p%x.%x;thread:p%x.%x;", third.pid(), third.pid(),
		 first.pid(), first.pid());
	between.exchange("vCont;c", fork);
	between.exchange(hg(third.pid()), "OK");
	is_program(between, condition);
	between.server_gets(framed("z" + place_of_hit())); /* see packets.fork */
	between.as_server(framed("E01"));
	/* Another program, whose description is not read yet. */
	snprintf(fork, sizeof(fork), "T05exec:2f;thread:p%x.%x;", third.pid(), third.pid());
	between.exchange("vCont;c", fork);
	between.exchange(condition, "OK");
	between.end();
}

TEST("packets.i386", "C1", "gdbserver gets the conditions of an i386 process")
{
	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	Child process = stopped_process();
	Between between;

	process.wait();
	between.stop_acks();
	between.exchange("qSupported:multiprocess+;hwbreak+", "ConditionalBreakpoints+");
	between.exchange("qXfer:features:read:target.xml:0,ffb", i386);
	between.exchange("?", stop_of(process.pid()));
	between.exchange(condition, "OK");
	between.exchange("z" + place_of_hit(), "OK");
	between.end();
#ifdef __x86_64__
	/* Whatever the description says. */
	for (const InstructionSet &set : instruction_sets()) {
		if (!executes(set))
			continue;

		Child compat([&] {
			ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
			return exec_compat(set);
		});
		Between lies;

		EXPECT_STATUS(compat.wait(), SIGTRAP << 8 | 0x7f, "the i386 process");
		get_ready(lies, compat.pid());
		lies.exchange(condition, "OK");
		lies.end();
	}
#endif
}

TEST("packets.resent", "C1", "a request that gdb sends again before it has a reply passes once")
{
	const std::string request = framed("qSupported:multiprocess+"), reply = framed("OK");
	Between between;

	/* perf_bpf_gdb may read both at once, or one after gdbserver's reply. */
	between.as_gdb(request);
	between.gdb_gets("+");
	between.server_gets(request);
	between.as_server("+" + reply);
	between.server_gets("+");
	between.gdb_gets(reply);
	between.as_gdb(request);
	between.gdb_gets("+");
	between.as_gdb("+" + request);
	between.gdb_gets("+");
	between.server_gets(request);
	between.as_server("+" + reply);
	between.server_gets("+");
	between.gdb_gets(reply);
	EXPECT_EQ(between.take_for_server(10).size(), 0, "bytes for gdbserver after the request");
	between.end();
}

TEST("packets.address", "C1", "--connect takes an IPv6 address in brackets")
{
	if (Fd(socket(AF_INET6, SOCK_STREAM, 0)).valid()) {
		Between between(AF_INET6);

		between.stop_acks();
		between.exchange("qC", "QCp1.1");
		between.end();
		return;
	}

	Pipe errors;
	Child proxy([&] {
		const std::string name = file_of_own_folder("perf_bpf_gdb");

		dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
		dup2(errors.in.get(), STDERR_FILENO);
		execl(name.c_str(), name.c_str(), "--connect", "[::1]:1", nullptr);
		return 127;
	});
	char text[1024] = {};

	errors.in.close();
	EXPECT_EQ(exit_code(proxy.wait()), 1, "exit of perf_bpf_gdb");
	if (read(errors.out.get(), text, sizeof(text) - 1) < 0)
		setup_failed("read", errno);
	EXPECT_TRUE(strstr(text, "--connect [::1]:1: ") && !strstr(text, "is not an address"),
		    "the address is understood");
}

TEST("packets.vfork", "C1", "gdbserver gets no breakpoint for a vforked child without a free slot")
{
	need_rejected_sigtrap();

	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	Child parent = stopped_process(), child = stopped_process();
	Between between;
	std::vector<Fd> events;
	char vfork[128];

	parent.wait();
	child.wait();
	get_ready(between, parent.pid());
	is_program(between, condition);
	do
		events.push_back(open_event(breakpoint(hit), child.pid()));
	while (events.back().valid());
	snprintf(vfork, sizeof(vfork), "T05vfork:p%x.%x;thread:p%x.%x;", child.pid(), child.pid(),
		 parent.pid(), parent.pid());
	between.exchange("vCont;c", vfork);
	between.exchange(hg(child.pid()), "OK");
	for (int i = 0; i < 2; i++) {
		is_program(between, condition);
		is_program(between, "z" + place_of_hit());
	}
#ifdef __x86_64__
	/* Nor does gdbserver get it to make room for a hardware breakpoint. */
	between.exchange("Z1,401000,1", "OK");
#endif
	/* After exec the child has its own memory, so gdbserver gets the breakpoint. */
	snprintf(vfork, sizeof(vfork), "T05exec:2f;thread:p%x.%x;", child.pid(), child.pid());
	between.exchange("vCont;c", vfork);
	between.exchange(condition, "OK");
	EXPECT_EQ(times(between.end(), "has no breakpoint at"), 2, "messages for the user");
}

TEST("packets.tracer", "C15",
     "gdbserver gets the condition of a breakpoint in a process that another process traces")
{
	need_rejected_sigtrap();

	Pipe ready;
	Child tracer([&] {
		Child process = stopped_process();
		const pid_t pid = process.pid();

		process.wait();
		if (write(ready.in.get(), &pid, sizeof(pid)) == sizeof(pid))
			pause();
		return 1;
	});
	Between between;
	pid_t pid = 0;

	if (read(ready.out.get(), &pid, sizeof(pid)) != sizeof(pid))
		setup_failed("read", errno);
	get_ready(between, pid);
	between.exchange("Z" + place_of_hit() + ";X3,220127", "OK");
	EXPECT_TRUE(between.end().find("this gdbserver does not trace") != std::string::npos,
		    "message for the user");
}

/* A condition with commands for the stub, and watchpoints of any length. */
TEST("packets.not_ours", "C1", "breakpoints with commands and watchpoints pass unchanged")
{
	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	Child process = stopped_process();
	Between between;

	process.wait();
	get_ready(between, process.pid());
	for (const char *more : { ";cmds:0,X1,27", "X1,27;cmds:1,X3,220127", ";X3,2201",
				  ";X4,220127", ";Y", ";X3,22012g" })
		between.exchange(condition + more, "OK");
	between.exchange("z" + place_of_hit(), "OK");
	for (char type : { '2', '3', '4' })
		for (const char *length : { "1", "8", "3e9", "ffffffff", "ffffffffffffffff" }) {
			const std::string place = std::string(1, type) + ",600001," + length;

			between.exchange("Z" + place + ";X3,220127", "E01");
			between.exchange("Z" + place, "OK");
			between.exchange("z" + place, "OK");
		}
	EXPECT_EQ(between.take_for_server(0).size(), 0,
		  "bytes for gdbserver that gdb has not sent");
	between.end();
}

std::string stop_at(uint64_t pc, pid_t pid, const char *more = "")
{
	char begin[64], end[64];

#ifdef __x86_64__
	snprintf(begin, sizeof(begin), "T05%s10:", more);
#else
	snprintf(begin, sizeof(begin), "T05%s20:", more);
#endif
	snprintf(end, sizeof(end), ";thread:p%x.%x;core:0;", pid, pid);
	return begin + hex(std::string(reinterpret_cast<const char *>(&pc), sizeof(pc))) + end;
}

std::string stop_at_hit(pid_t pid, const char *more = "")
{
	return stop_at(reinterpret_cast<uint64_t>(hit), pid, more);
}

TEST("packets.non_stop", "C1",
     "a notification names the breakpoint that was hit, and does not change the process of Z "
     "packets")
{
	need_rejected_sigtrap();

	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	Child process = stopped_process(), other = stopped_process();
	Between between;

	process.wait();
	other.wait();
	get_ready(between, process.pid());
	between.exchange("QNonStop:1", "OK");
	between.exchange(hg(process.pid()), "OK");
	is_program(between, condition);
	between.exchange("vCont;c", "OK");
	between.as_server(framed("Stop:" + stop_at_hit(process.pid()), '%'));
	between.gdb_gets(framed("Stop:" + stop_at_hit(process.pid(), "hwbreak:;"), '%'));
	/* The same in the reply to vStopped. */
	between.as_gdb(framed("vStopped"));
	between.server_gets(framed("vStopped"));
	between.as_server(framed(stop_at_hit(process.pid())));
	between.gdb_gets(framed(stop_at_hit(process.pid(), "hwbreak:;")));
	/* A stop whose reason gdbserver knows is not changed. */
	between.as_server(framed("Stop:" + stop_at_hit(process.pid(), "swbreak:;"), '%'));
	between.gdb_gets(framed("Stop:" + stop_at_hit(process.pid(), "swbreak:;"), '%'));
	/* The other process has no breakpoint. */
	between.exchange("vStopped", stop_at_hit(other.pid()));
	between.exchange("vStopped", "OK");
	is_program(between, "z" + place_of_hit());
	between.end();
}

/* The process jumps to the breakpoint with known values in all registers. */
TEST("packets.registers", "C1", "a condition reads each general register by its number in gdb")
{
	need_rejected_sigtrap();

	Child process = process_that_hits();
	Between between;
#ifdef __x86_64__
	using Regs = user_regs_struct;
	decltype(Regs::rax) Regs::*const general[] = {
		&Regs::rax, &Regs::rbx, &Regs::rcx, &Regs::rdx, &Regs::rsi, &Regs::rdi,
		&Regs::rbp, &Regs::rsp, &Regs::r8,  &Regs::r9,	&Regs::r10, &Regs::r11,
		&Regs::r12, &Regs::r13, &Regs::r14, &Regs::r15, &Regs::rip,
	};
	constexpr size_t NUMBER = std::size(general);
	const auto at = [&](Regs & regs, size_t i) -> auto &
	{
		return regs.*general[i];
	};
#else
	constexpr size_t NUMBER = 33;
	const auto at = [&](user_regs_struct & regs, size_t i) -> auto &
	{
		return i < 31 ? regs.regs[i] : i == 31 ? regs.sp : regs.pc;
	};
#endif

	process.wait();
	get_ready(between, process.pid());
	for (size_t number = 0; number < NUMBER; number++) {
		const user_regs_struct before = registers_of(process.pid());
		user_regs_struct values = before;
		char condition[128];

#ifdef __x86_64__
		values.orig_rax = -1; /* no system call to restart */
#endif
		for (size_t i = 0; i < NUMBER; i++)
			at(values, i) = 0x0123456700000010 * (i + 1);
		pc_of(values) = reinterpret_cast<uint64_t>(hit);
		set_registers(process.pid(), values);
		snprintf(condition, sizeof(condition), ";Xe,2600%02zx25%016llx1327", number,
			 static_cast<unsigned long long>(at(values, number)));
		is_program(between, "Z" + place_of_hit() + condition);
		ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
		if (const int status = process.wait(); status != (SIGTRAP << 8 | 0x7f))
			fail("expected that register %zu has its value, but the process was %s",
			     number, status_text(status).c_str());
		is_program(between, "z" + place_of_hit());
		/*
		 * Execute one instruction there: arm64 would resume the step over it when pc comes
		 * back, without another hit.
		 */
		values = before;
		pc_of(values) = reinterpret_cast<uint64_t>(hit);
		set_registers(process.pid(), values);
		ptrace(PTRACE_SINGLESTEP, process.pid(), nullptr, nullptr);
		EXPECT_STATUS(process.wait(), SIGTRAP << 8 | 0x7f, "the process after one step");
		/* Back to where it was, and on to its next SIGSTOP. */
		set_registers(process.pid(), before);
		ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
		EXPECT_STATUS(process.wait(), SIGSTOP << 8 | 0x7f, "the process");
	}
	between.end();
}

TEST("packets.threads", "C1", "a condition is in force in each of 300 threads")
{
	constexpr int THREADS = 300;
	need_rejected_sigtrap();

	/* Only the main thread is traced: the others must not get a SIGTRAP. */
	Child process([] {
		std::vector<std::thread> threads;
		std::atomic<int> running = 0;
		std::atomic<bool> go = false;

		for (int i = 1; i < THREADS; i++)
			threads.emplace_back([&] {
				running++;
				go.wait(false);
				hit(0);
			});
		while (running < THREADS - 1)
			usleep(1000);
		ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
		raise(SIGSTOP);
		hit(0);
		go = true;
		go.notify_all();
		for (std::thread &thread : threads)
			thread.join();
		raise(SIGSTOP);
		return 0;
	});
	Between between;
	char report[128];

	process.wait();
	get_ready(between, process.pid());
	is_program(between, "Z" + place_of_hit() + ";X3,220027");
	ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
	EXPECT_STATUS(process.wait(), SIGSTOP << 8 | 0x7f, "the process");
	snprintf(report, sizeof(report), "0x%lx in process %d: %d hits in the kernel\n",
		 reinterpret_cast<unsigned long>(hit), process.pid(), THREADS);
	between.as_gdb(framed("qRcmd," + hex("perf_bpf")));
	between.gdb_gets(framed("O" + hex(report)) + framed("OK"));
	between.end();
}

TEST("packets.report", "C1", "monitor perf_bpf lists no breakpoint that gdb has deleted")
{
	need_rejected_sigtrap();

	const uint64_t second = reinterpret_cast<uint64_t>(hit) + 4;
	Child process = stopped_process();
	Between between;
	char place[64], report[128];

	snprintf(place, sizeof(place), "0,%llx,1", static_cast<unsigned long long>(second));
	snprintf(report, sizeof(report), "0x%llx in process %d: 0 hits in the kernel\n",
		 static_cast<unsigned long long>(second), process.pid());
	process.wait();
	get_ready(between, process.pid());
	/* gdb removes its breakpoints at each stop, and inserts those again that it still has. */
	for (const std::string &inserted : { place_of_hit(), std::string(place) }) {
		is_program(between, "Z" + inserted + ";X3,220127");
		between.exchange("vCont;c", stop_of(process.pid()));
		is_program(between, "z" + inserted);
	}
	between.as_gdb(framed("qRcmd," + hex("perf_bpf")));
	between.gdb_gets(framed("O" + hex(report)) + framed("OK"));
	between.end();
}

TEST("packets.late", "C1",
     "perf_bpf_gdb explains a SIGTRAP that stops a thread elsewhere after a hit, but not one after "
     "a "
     "step")
{
	need_rejected_sigtrap();

	Child process = process_that_blocks_sigtrap();
	Between between;
	const std::string late = stop_at(reinterpret_cast<uint64_t>(hit) + 64, process.pid());

	process.wait();
	get_ready(between, process.pid());
	is_program(between, "Z" + place_of_hit() + ";X3,220127");
	between.exchange("vCont;c", late); /* of the program: there was no hit */
	ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
	EXPECT_STATUS(process.wait(), SIGSTOP << 8 | 0x7f, "the process blocks SIGTRAP");
	between.exchange("vCont;s", late);
	between.exchange("vCont;c", late);
	EXPECT_EQ(times(between.end(), "because it blocked SIGTRAP"), 1, "messages");
}

/* Without a tracer, the SIGTRAP that is pending would terminate the process. */
TEST("packets.detach", "C1", "gdb cannot detach from a thread with a pending SIGTRAP of a hit")
{
	need_rejected_sigtrap();

	Child process = process_that_blocks_sigtrap();
	Between between;
	char detach[32];

	process.wait();
	get_ready(between, process.pid());
	snprintf(detach, sizeof(detach), "D;%x", process.pid());
	is_program(between, "Z" + place_of_hit() + ";X3,220127");
	ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
	EXPECT_STATUS(process.wait(), SIGSTOP << 8 | 0x7f, "the process blocks SIGTRAP");
	between.as_gdb(framed(detach));
	between.gdb_gets(framed("E01"));
	ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
	EXPECT_STATUS(process.wait(), SIGTRAP << 8 | 0x7f, "the process unblocks SIGTRAP");
	between.exchange(detach, "OK");
	ptrace(PTRACE_CONT, process.pid(), nullptr, nullptr);
	EXPECT_STATUS(process.wait(), 0, "the process afterwards");
	EXPECT_EQ(times(between.end(), "cannot detach now"), 1, "messages");
}

TEST("packets.may_lose", "C6",
     "perf_bpf_gdb warns once if the kernel may lose accepted hits, and not on other kernels")
{
	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	bool loses = kernel_rejects_sigtrap();

	/* The series also fixes PERF_EVENT_IOC_PERIOD, by which one hit became two overflows. */
	if (loses) {
		Filter filter;
		Event event(breakpoint(hit));

		event.enable(filter);
		hit(0);
		event.set_period(2);
		hit(0);
		loses = filter.runs() != 1;
	}

	Child process = stopped_process();
	Between between;

	process.wait();
	get_ready(between, process.pid());
	for (int i = 0; i < 2 && kernel_rejects_sigtrap(); i++) {
		is_program(between, condition);
		is_program(between, "z" + place_of_hit());
	}
	EXPECT_EQ(times(between.end(), "may lose hits"), loses, "warnings");
}

TEST("packets.unsupported", "C1",
     "on a kernel that sends SIGTRAP for rejected hits, gdbserver gets each condition, and "
     "perf_bpf_gdb says so once")
{
	const std::string condition = "Z" + place_of_hit() + ";X3,220127";
	const bool supported = kernel_rejects_sigtrap();
	Child process = stopped_process();
	Between between;

	process.wait();
	get_ready(between, process.pid());
	for (int i = 0; i < 2; i++)
		for (const std::string &request : { condition, "z" + place_of_hit() }) {
			if (supported)
				is_program(between, request);
			else
				between.exchange(request, "OK");
		}

	const std::string said = between.end();

	EXPECT_EQ(times(said, "gdbserver evaluates all conditions: "), !supported, "messages");
	EXPECT_EQ(times(said, "the kernel has no attr.sigtrap, which came with Linux 5.13"),
		  !has_sigtrap(), "messages that name attr.sigtrap");
}

/* gdb's peer must not be able to send SIGTRAP to any process of the user. */
TEST("packets.untraced", "C15",
     "gdbserver gets the condition of a breakpoint in a process that is not traced")
{
	need_rejected_sigtrap();

	Child process([] {
		for (;;) {
			hit(0);
			usleep(1000);
		}
		return 0;
	});
	Between between;
	char insert[64];

	get_ready(between, process.pid());
	snprintf(insert, sizeof(insert), "Z0,%lx,1;X3,220127",
		 reinterpret_cast<unsigned long>(hit));
	between.exchange(insert, "OK");
	usleep(10'000);
	EXPECT_EQ(waitpid(process.pid(), nullptr, WNOHANG), 0, "processes that have ended");
	kill(process.pid(), SIGKILL);
	process.wait();
	between.end();
}

/* gdbserver and its program must not stay. */
TEST("packets.signals", "C1", "SIGTERM and SIGHUP end perf_bpf_gdb like the end of gdb")
{
	for (int sig : { SIGTERM, SIGHUP }) {
		Between between;

		between.stop_acks();
		between.ended_by(sig);
	}
}

} // namespace
