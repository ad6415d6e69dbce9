/* SPDX-License-Identifier: GPL-2.0 */
/* The rights of a process: capabilities(7), and what the kernel's settings allow all users. */
#pragma once

#include <linux/capability.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

constexpr uid_t NOBODY = 65534; /* an account without privileges; the overflowuid of the kernel */

/* Sets of capabilities, one bit for each. */
constexpr uint64_t cap(int number)
{
	return 1ull << number;
}

constexpr uint64_t PERFMON = cap(CAP_PERFMON), BPF = cap(CAP_BPF), ADMIN = cap(CAP_SYS_ADMIN),
		   KILL = cap(CAP_KILL);

/* setup_failed() if become() would fail. For a test that waits for a child that calls it. */
void need_root();

/* Changes the user of the calling process, and limits it to these capabilities. */
void become(uid_t user, uint64_t capabilities);

/*
 * The rights that the calling process lacks to load a program and to attach it to a breakpoint on
 * itself, as "; "-separated text for the administrator, or "" if nothing is missing. Other
 * obstacles are not reported.
 */
std::string missing_rights();
