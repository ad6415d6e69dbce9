// SPDX-License-Identifier: GPL-2.0
/*
 * Unprivileged: a debugger without capabilities seeks as in seek.cc, with a borrowed program.
 * Loading a program requires CAP_BPF and CAP_PERFMON; using one requires only its descriptor.
 *
 * Recipe: a service with these two capabilities listens on a socket (systemd.socket(5) passes the
 * listening socket as descriptor 3). It loads a new register filter for each debugger that
 * connects, and sends the descriptors of the program and of the map with its condition. After that
 * the debugger does not need the service: it maps the map into its memory, and the program is freed
 * with its event. The debugger gains no rights: the program runs only for events that the debugger
 * may open, and sees only what the debugger could read after a stop. The memory is charged to the
 * service's cgroup.
 */
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <string>

#include "lib/rights.h"
#include "lib/sysctl.h"
#include "uses/tracee.h"

/* --- the service, which systemd restarts if it ends --- */

[[noreturn]] static void serve(int listener)
{
	for (;;) {
		const Fd debugger(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));

		if (!debugger.valid())
			setup_failed("accept4", errno);

		const Uses uses("seek");

		/* Errors are ignored: the debugger may have exited. */
		if (!send_fd(debugger.get(), uses.prog_fd(), MSG_NOSIGNAL))
			send_fd(debugger.get(), bpf_map__fd(uses->maps.bss), MSG_NOSIGNAL);
	}
}

/* --- the debugger --- */

/* The descriptors that the service sends, in this order. */
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
			setup_failed("receiving from the service", err);
		return fd;
	}

	const Fd socket_, program_;
	const BorrowedGlobals globals_;
};

/* Also borrows a second filter, as another debugger would. It must not be affected. */
static int debug(const sockaddr_un &service)
{
	become(NOBODY, 0);
	EXPECT_FALSE(missing_rights().empty(), "the debugger may load programs");

	const Borrowed mine(service), others(service);
	SeekTracee tracee(mine.prog_fd(), mine.globals());
	const std::vector<Registers> oracle = tracee.step_through_a_lap();
	const uint64_t target = 2 * LAP - 1;
	const Registers &wanted = oracle.back();
	uint64_t nth = 0;

	for (const Registers &arrival : oracle)
		nth += arrival.matches(wanted, 1 << 0);
	others.globals()->seek_nth = 1;
	EXPECT_EQ(tracee.seek(wanted, 1 << 0, nth, target), 1, "wakeups of the tracer");
	EXPECT_EQ(tracee.arrived(), target, "arrivals before the one at which the tracee stopped");
	EXPECT_TRUE(tracee.registers() == wanted,
		    "the registers are those that single-stepping recorded");
	EXPECT_EQ(mine.globals()->seek_seen, nth, "arrivals that matched the condition");
	EXPECT_EQ(others.globals()->seek_seen, 0,
		  "arrivals counted by the other debugger's program");
	tracee.end();
	return 0;
}

TEST("uses.unprivileged", "C1",
     "a debugger without rights seeks with a borrowed program and is woken once")
{
	/* Skip the test in the parent if the kernel has no bpf(). */
	const Fd loads = load_least(0);
	/* In the abstract namespace, unix(7), so that no file remains. */
	const std::string name = "perf_bpf_filter." + std::to_string(getpid());
	sockaddr_un service = { AF_UNIX, "" };
	const Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	Sysctl paranoid("kernel/perf_event_paranoid");

	name.copy(service.sun_path + 1, sizeof(service.sun_path) - 1);
	if (bind(listener.get(), reinterpret_cast<sockaddr *>(&service), sizeof(service)) ||
	    listen(listener.get(), 2))
		setup_failed("a socket to listen on", errno);
	/* The default upstream. From 3 on, Debian's kernels refuse all events of users. */
	paranoid.set(2);

	const Child broker([&]() -> int { serve(listener.get()); });

	EXPECT_STATUS(Child([&] { return debug(service); }).wait(), 0, "the debugger");
}
