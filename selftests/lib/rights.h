/* SPDX-License-Identifier: GPL-2.0 */
/* What a process may: capabilities(7), and what the kernel's settings leave to everybody. */
#pragma once

#include <linux/capability.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

constexpr uid_t NOBODY = 65534;

/* Sets of capabilities, a bit each. */
constexpr uint64_t cap(int number)
{
	return 1ull << number;
}

constexpr uint64_t PERFMON = cap(CAP_PERFMON), BPF = cap(CAP_BPF), ADMIN = cap(CAP_SYS_ADMIN),
		   KILL = cap(CAP_KILL);

/* The calling process is @user's with these capabilities, from now on. */
void become(uid_t user, uint64_t capabilities);

/*
 * What the calling process lacks to load a program and to put it on a breakpoint of its own, in the
 * words of who can give it: a clause for each, none if there is nothing. Whatever else may be in the
 * way it says nothing of.
 */
std::string missing_rights();
