// SPDX-License-Identifier: GPL-2.0
/* Calls that request and read notifications of hits: signals, rings, read(2), poll(2). */
#include "fuzz/fuzz.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

static long set_owner(Worker &w)
{
	f_owner_ex ex = { static_cast<__pid_type>(w.random.below(4)), w.owner() };

	/* Signals must not reach other process groups. */
	if (ex.type == F_OWNER_PGRP)
		ex.pid = getpgrp();
	ex.pid = ex.pid < 0 ? -ex.pid : ex.pid;
	return outcome(fcntl(w.event(), F_SETOWN_EX, &ex));
}

static long map_ring(Worker &w)
{
	const size_t pages = w.random.one_in(12) ? w.odd_number() % 600 : 1ul << w.random.below(4);
	const bool writable = !w.random.one_in(4);
	/* The AUX area is mapped after the ring. */
	const off_t at = w.random.one_in(30) ? 9 * PAGE : 0;
	const size_t size = (pages + !at) * PAGE;
	void *map = mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
			 w.event(), at);

	if (map == MAP_FAILED)
		return -errno;

	auto *mapping = new Mapping{ static_cast<char *>(map), size, writable };

	if (Mapping *old = mappings[w.random.below(std::size(mappings))].exchange(mapping)) {
		munmap(old->at, old->size);
		delete old;
	}
	return 0;
}

static long unmap_ring(Worker &w)
{
	Mapping *mapping = mappings[w.random.below(std::size(mappings))].exchange(nullptr);

	if (!mapping)
		return NOTHING;

	long done = outcome(munmap(mapping->at, mapping->size));

	delete mapping;
	return done;
}

/* Does something that user space may do to a ring's control page and to its mapping. */
static long use_ring(Worker &w)
{
	auto &slot = mappings[w.random.below(std::size(mappings))];
	Mapping *mapping = slot.exchange(nullptr);
	long done = 0;

	if (!mapping)
		return NOTHING;
	auto *page = reinterpret_cast<perf_event_mmap_page *>(mapping->at);
	switch (w.random.below(mapping->writable ? 6 : 3)) {
	case 0:
		done = outcome(mprotect(mapping->at, mapping->size, PROT_READ));
		mapping->writable = false;
		break;
	case 1: /* part of it; the rest stays */
		if (mapping->size > 2 * PAGE) {
			mapping->size -= PAGE;
			done = outcome(munmap(mapping->at + mapping->size, PAGE));
		}
		break;
	case 2:
		done = outcome(madvise(mapping->at, mapping->size,
				       w.random.of({ MADV_DOFORK, MADV_DONTNEED, MADV_REMOVE })));
		break;
	case 3: /* an invalid tail */
		page->data_tail = w.odd_number();
		break;
	default:
		page->data_tail = page->data_head;
	}
	if (Mapping *newer = slot.exchange(mapping)) {
		munmap(newer->at, newer->size);
		delete newer;
	}
	return done;
}

static const Kind kinds_here[] = {
	{ "set owner", 10,
	  [](Worker &w) { return outcome(fcntl(w.event(), F_SETOWN, w.owner())); } },
	{ "set owner ex", 10, set_owner },
	{ "set signal", 10,
	  [](Worker &w) {
		  return outcome(fcntl(w.event(), F_SETSIG,
				       w.random.one_in(60)
					       ? w.random.of({ SIGKILL, 65, -1 })
					       : w.random.of({ 0, SIGIO, SIGTRAP, SIGUSR2,
							       SIGRTMIN + 1, SIGRTMIN + 2 })));
	  } },
	{ "set async", 25,
	  [](Worker &w) {
		  return outcome(fcntl(w.event(), F_SETFL,
				       O_NONBLOCK | (w.random.below(4) ? O_ASYNC : 0)));
	  } },
	{ "mmap", 20, map_ring },
	{ "munmap", 10, unmap_ring },
	{ "use ring", 10, use_ring },
	{ "read", 15,
	  [](Worker &w) {
		  uint64_t values[64];

		  return outcome(read(w.event(),
				      w.random.one_in(20) ? nullptr : static_cast<void *>(values),
				      w.random.one_in(8) ? w.random.below(24) : sizeof(values)));
	  } },
	{ "poll", 8,
	  [](Worker &w) {
		  pollfd fds[] = { { w.event(), POLLIN, 0 }, { w.event(), POLLIN, 0 } };

		  return outcome(poll(fds, 2, w.random.one_in(10)));
	  } },
};

std::span<const Kind> calls_on_rings()
{
	return kinds_here;
}
