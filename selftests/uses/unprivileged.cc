// SPDX-License-Identifier: GPL-2.0
/*
 * Unprivileged: a debugger without any right seeks as in seek.cc, with a program that it borrows.
 * To load a program takes CAP_BPF and CAP_PERFMON; to use one takes its descriptor.
 *
 * Recipe: a service with those two capabilities listens on a socket (systemd.socket(5); it gets
 * the listening socket as descriptor 3). Whoever connects is sent the register filter and the map
 * that holds its condition, both made for this one debugger, and is then on its own: the map is
 * memory to it, the program goes with its event. What it may do is what it might anyway: a program
 * runs for events alone that a debugger may open, and sees what its owner would read after the
 * stop. What it holds is charged to the memory cgroup of the service.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "lib/rights.h"
#include "lib/sysctl.h"
#include "uses/tracee.h"

/* --- the service; systemd starts it again should it end --- */

[[noreturn]] static void serve(int listener)
{
	for (;;) {
		const Fd debugger(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));

		if (!debugger.valid())
			setup_failed("accept4", errno);

		const Uses uses("seek");

		/* One that has gone already does not matter. */
		if (!send_fd(debugger.get(), uses.prog_fd(), MSG_NOSIGNAL))
			send_fd(debugger.get(), bpf_map__fd(uses->maps.bss), MSG_NOSIGNAL);
	}
}

/* --- the debugger --- */

/* What the service sends, in its order. */
class Borrowed {
public:
	explicit Borrowed(const sockaddr_un &service)
		: socket_(connected(service))
		, program_(next())
		, globals_(next().get())
	{
		if (!globals_.valid())
			setup_failed("mmap of the condition", errno);
	}

	int prog_fd() const { return program_.get(); }
	volatile auto *globals() const { return globals_.get(); }

private:
	static Fd connected(const sockaddr_un &service)
	{
		Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));

		if (connect(fd.get(), reinterpret_cast<const sockaddr *>(&service),
			    sizeof(service)))
			setup_failed("connect", errno);
		return fd;
	}
	Fd next() const
	{
		int err;
		Fd fd = receive_fd(socket_.get(), &err);

		if (!fd.valid())
			setup_failed("what the service sends", err);
		return fd;
	}

	const Fd socket_, program_;
	const LentGlobals globals_;
};

/* Somebody else's condition is another one: it is neither asked nor met. */
static int debug(const sockaddr_un &service)
{
	become(NOBODY, 0);
	EXPECT_FALSE(missing_rights().empty(), "the debugger has the rights to load a program");

	const Borrowed mine(service), others(service);
	Tracee tracee(mine.prog_fd(), mine.globals());
	const std::vector<Registers> oracle = tracee.step_through_a_lap();
	const uint64_t target = 2 * LAP - 1;
	const Registers &wanted = oracle.back();
	uint64_t nth = 0;

	for (const Registers &arrival : oracle)
		nth += arrival.matches(wanted, 1 << 0);
	others.globals()->seek_nth = 1;
	EXPECT_EQ(tracee.seek(wanted, 1 << 0, nth, target), 1, "wakeups of the tracer");
	EXPECT_EQ(tracee.arrived(), target, "arrivals before the one it landed on");
	EXPECT_TRUE(tracee.registers() == wanted, "registers as the oracle has them");
	EXPECT_EQ(mine.globals()->seek_seen, nth, "arrivals that the program has let count");
	EXPECT_EQ(others.globals()->seek_seen, 0, "arrivals that another's has");
	tracee.end();
	return 0;
}

TEST("uses.unprivileged", "C1",
     "a debugger without rights seeks with a borrowed program and is woken once")
{
	/* If the kernel has no bpf() the test is skipped here: the broker could not. */
	const Fd loads = load_least(0);
	/* In the abstract namespace, so that nothing of it stays: unix(7). */
	const std::string name = "perf_bpf_filter." + std::to_string(getpid());
	sockaddr_un service = { AF_UNIX, "" };
	const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	Sysctl paranoid("kernel/perf_event_paranoid");

	name.copy(service.sun_path + 1, sizeof(service.sun_path) - 1);
	if (bind(listener.get(), reinterpret_cast<sockaddr *>(&service), sizeof(service)) ||
	    listen(listener.get(), 2))
		setup_failed("a socket to listen on", errno);
	/* As upstream has it. From 3 on Debian lets nobody open an event. */
	paranoid.set(2);

	const Child broker([&]() -> int { serve(listener.get()); });

	EXPECT_EQ(Child([&] { return debug(service); }).wait(), 0, "end of the debugger");
}
