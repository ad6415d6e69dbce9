// SPDX-License-Identifier: GPL-2.0
#include "lib/mount.h"

#include <sched.h>
#include <sys/mount.h>

bool mount_privately(const char *type, const char *where, const char *options)
{
	return !unshare(CLONE_NEWNS) &&
	       !mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) &&
	       !mount(type, where, type, 0, options);
}
