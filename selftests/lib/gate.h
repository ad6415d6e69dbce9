/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A gate at which threads and children wait: each open() lets one of them pass. Implemented by an
 * eventfd(2) semaphore.
 */
#pragma once

#include <sys/eventfd.h>

#include <cerrno>

#include "lib/fail.h"
#include "lib/fd.h"

class Gate {
public:
	void open()
	{
		if (eventfd_write(fd_.get(), 1))
			setup_failed("eventfd", errno);
	}
	void pass()
	{
		eventfd_t n;

		if (eventfd_read(fd_.get(), &n))
			setup_failed("eventfd", errno);
	}

private:
	Fd fd_{ eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE) };
};
