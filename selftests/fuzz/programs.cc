// SPDX-License-Identifier: GPL-2.0
/* Calls that load programs and attach them to events. */
#include "fuzz/fuzz.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/ioctl.h>

#include <iterator>

static long attach_one(Worker &w)
{
	/* A program of another type on an event that is no breakpoint; valid for a tracepoint. */
	if (w.random.one_in(4))
		return outcome(ioctl(others.any(w.random), PERF_EVENT_IOC_SET_BPF,
				     w.random.of(wrong_progs)));
	return outcome(ioctl(w.event(), PERF_EVENT_IOC_SET_BPF, w.prog()));
}

static long load_prog(Worker &w)
{
	bpf_insn insns[] = {
		{ BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0,
		  w.random.of({ 0, 0, 1, 2, INT_MIN }) },
		{ BPF_JMP | BPF_EXIT, 0, 0, 0, 0 },
	};
	bpf_prog_type type = w.random.one_in(8) ? static_cast<bpf_prog_type>(w.random.below(33))
						: BPF_PROG_TYPE_PERF_EVENT;
	int fd = bpf_prog_load(type, "fuzz", "GPL", insns, std::size(insns), nullptr);

	if (fd >= 0)
		progs.put(w.random, fd);
	return fd;
}

static long link_one(Worker &w)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts,
		    .perf_event = { .bpf_cookie = w.random.one_in(3) ? w.random.next() : 0 });
	auto type = w.random.one_in(20) ? static_cast<bpf_attach_type>(w.random.below(50))
					: BPF_PERF_EVENT;

	if (w.random.one_in(30))
		opts.flags = w.odd_number();

	int fd = bpf_link_create(w.prog(), w.event(), type, &opts);

	if (fd >= 0)
		links.put(w.random, fd);
	return fd;
}

static const Kind kinds_here[] = {
	{ "attach by ioctl", 25, attach_one },
	{ "attach by link", 35, link_one, LINKS },
	{ "close link", 30,
	  [](Worker &w) {
		  int fd = links.take(w.random);

		  return fd < 0 ? NOTHING : outcome(close(fd));
	  },
	  LINKS },
	{ "update link", 3,
	  [](Worker &w) {
		  int link = links.any(w.random);

		  return long(bpf_link_update(link, w.prog(), nullptr));
	  },
	  NEVER | LINKS }, /* links of perf events have no update */
	{ "detach link", 3, [](Worker &w) { return long(bpf_link_detach(links.any(w.random))); },
	  NEVER | LINKS }, /* links of perf events have no detach */
	{ "ask link", 3,
	  [](Worker &w) {
		  bpf_link_info info = {};
		  uint32_t size = sizeof(info);

		  return long(bpf_obj_get_info_by_fd(links.any(w.random), &info, &size));
	  },
	  LINKS },
	{ "query task", 3,
	  [](Worker &w) {
		  char name[64];
		  uint32_t size = sizeof(name), prog, type;
		  unsigned long long offset, address;

		  return long(bpf_task_fd_query(getpid(), others.any(w.random), 0, name, &size,
						&prog, &type, &offset, &address));
	  } },
	{ "load program", 20, load_prog },
	{ "close program", 15,
	  [](Worker &w) {
		  int fd = progs.take(w.random);

		  return fd < 0 ? NOTHING : outcome(close(fd));
	  } },
	{ "change verdict", 15,
	  [](Worker &w) {
		  filters[w.random.below(filters.size())]->returns_if(
			  w.random.below(2), static_cast<filter_condition>(w.random.below(4)),
			  w.random.below(3));
		  return 0l;
	  } },
};

std::span<const Kind> calls_on_programs()
{
	return kinds_here;
}
