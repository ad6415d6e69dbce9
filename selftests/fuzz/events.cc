// SPDX-License-Identifier: GPL-2.0
/* Calls that open events, and ioctl(2) on them. */
#include "fuzz/fuzz.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <iterator>

static long open_one(Worker &w, bool of_breakpoints)
{
	Random &random = w.random;
	perf_event_attr attr = attributes(w, of_breakpoints);
	pid_t pid = w.target();
	int cpu = -1, group = -1;
	unsigned long flags = random.one_in(2) ? PERF_FLAG_FD_CLOEXEC : 0;

	if (random.one_in(8))
		cpu = random.below(2);
	if (random.one_in(12)) {
		pid = -1;
		cpu = random.below(2);
	}
	if (random.one_in(40))
		cpu = random.of({ -2, 77, INT_MAX });
	if (random.one_in(40))
		pid = random.of({ 1, -2, INT_MAX, getppid() });
	/*
	 * Kernels since 5.13 oops if the event's task executes exec() while another task opens such
	 * an event: it is removed from its owner's list before it has been added.
	 */
	if (pid && pid != threads[0] && pid != threads[1])
		attr.remove_on_exec = attr.sigtrap = 0;
	if (random.one_in(8))
		group = w.event();
	if (random.one_in(20))
		flags |= 1ul << random.below(5);

	long fd = outcome(syscall(SYS_perf_event_open, &attr, pid, cpu, group, flags));

	if (fd < 0)
		return fd;
	if (fd < long(std::size(opened)))
		opened[fd] = attr;
	if (random.one_in(3))
		ioctl(fd, PERF_EVENT_IOC_SET_BPF, w.prog());
	(attr.type == PERF_TYPE_BREAKPOINT ? breakpoints : others).put(random, fd);
	return fd;
}

static long plain_ioctl(Worker &w, unsigned long request)
{
	return outcome(
		ioctl(w.event(), request, w.random.one_in(8) ? w.odd_number() : w.random.below(2)));
}

static long modify(Worker &w)
{
	if (has_prctl)
		return NOTHING;

	int fd = breakpoints.any(w.random);
	perf_event_attr place = of_breakpoint(w.random), attr = place;

	if (fd >= 0 && fd < int(std::size(opened))) {
		attr = opened[fd];
		attr.bp_addr = place.bp_addr;
		attr.bp_len = place.bp_len;
		attr.bp_type = place.bp_type;
	}
	attr.disabled = w.random.one_in(3);
	if (w.random.one_in(6))
		spoil(attr, w);
	return outcome(ioctl(fd, PERF_EVENT_IOC_MODIFY_ATTRIBUTES, &attr));
}

static long send_one(Worker &w)
{
	return -send_fd(mail[0], w.random.one_in(3) ? links.any(w.random) : w.event(),
			MSG_DONTWAIT | MSG_NOSIGNAL);
}

static long receive_one(Worker &w)
{
	int err;
	Fd fd = receive_fd(mail[1], &err, MSG_DONTWAIT);

	if (err == EAGAIN || (!err && !fd.valid()))
		return NOTHING;
	if (err)
		return -err;
	others.put(w.random, fd.release());
	return 0;
}

/* Hits the counters of the task that is on the CPU. */
static long overflow(Worker &w)
{
	if (!pmu)
		return NOTHING;
	overflows[w.random.below(overflows.size())].make(1 + w.random.below(30));
	return 0;
}

static const Kind kinds_here[] = {
	{ "open breakpoint", 60, [](Worker &w) { return open_one(w, true); } },
	{ "open other", 30, [](Worker &w) { return open_one(w, false); } },
	{ "open rubbish", 2,
	  [](Worker &w) {
		  perf_event_attr attr;
		  auto *bytes = reinterpret_cast<unsigned char *>(&attr);

		  for (size_t i = 0; i < sizeof(attr); i++)
			  bytes[i] = w.random.one_in(4) ? w.random.next() : 0;
		  /* Must not be a clock with a short period, see clock_period(). */
		  attr.type |= 8;
		  return outcome(syscall(SYS_perf_event_open, &attr, w.target(), -1, -1, 0));
	  },
	  NEVER }, /* the attributes are random bytes */
	{ "overflow counters", 15, overflow },
	{ "close event", 25,
	  [](Worker &w) {
		  int fd = w.events().take(w.random);

		  return fd < 0 ? NOTHING : outcome(close(fd));
	  } },
	{ "dup event", 8,
	  [](Worker &w) {
		  Pool &pool = w.events();
		  long fd = outcome(dup(pool.any(w.random)));

		  if (fd >= 0)
			  pool.put(w.random, fd);
		  return fd;
	  } },
	{ "send event", 6, send_one },
	{ "receive event", 8, receive_one },
	{ "enable", 20, [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_ENABLE); } },
	{ "disable", 10, [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_DISABLE); } },
	{ "refresh", 20,
	  [](Worker &w) {
		  return outcome(ioctl(w.event(), PERF_EVENT_IOC_REFRESH,
				       w.random.one_in(6) ? w.odd_number() : w.random.below(4)));
	  } },
	{ "reset", 4, [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_RESET); } },
	{ "period", 12,
	  [](Worker &w) {
		  bool breakpoint = w.random.below(3);
		  uint64_t period = breakpoint ? w.odd_number() : clock_period(w.random);

		  if (breakpoint && w.random.one_in(2))
			  period = 1 + w.random.below(3);
		  return outcome(ioctl((breakpoint ? breakpoints : others).any(w.random),
				       PERF_EVENT_IOC_PERIOD,
				       w.random.one_in(30) ? nullptr : &period));
	  } },
	{ "set output", 12,
	  [](Worker &w) {
		  return outcome(ioctl(w.event(), PERF_EVENT_IOC_SET_OUTPUT,
				       w.random.one_in(3) ? -1l : w.event()));
	  } },
	{ "set filter", 4,
	  [](Worker &w) {
		  static const char *const filters[] = {
			  "common_pid != 0", "common_pid == 0", "0", "start 0/4", "((((", "",
			  "nr == 110"
		  };

		  return outcome(ioctl(w.random.one_in(20) ? w.event() : others.any(w.random),
				       PERF_EVENT_IOC_SET_FILTER, w.random.of(filters)));
	  } },
	{ "pause output", 6,
	  [](Worker &w) { return plain_ioctl(w, PERF_EVENT_IOC_PAUSE_OUTPUT); } },
	{ "query bpf", 3,
	  [](Worker &w) {
		  uint32_t query[2 + 8] = { uint32_t(w.random.below(9)) };

		  return outcome(ioctl(others.any(w.random), PERF_EVENT_IOC_QUERY_BPF, query));
	  } },
	{ "modify", 25, modify },
	{ "id", 3,
	  [](Worker &w) {
		  uint64_t id;

		  return outcome(ioctl(w.event(), PERF_EVENT_IOC_ID, &id));
	  } },
	{ "unknown ioctl", 2,
	  [](Worker &w) { return outcome(ioctl(w.event(), _IO('$', 12 + w.random.below(99)), 0)); },
	  NEVER }, /* there is no such request */
};

std::span<const Kind> calls_on_events()
{
	return kinds_here;
}
