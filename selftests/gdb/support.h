/* SPDX-License-Identifier: GPL-2.0 */
/* Whether the running kernel, and the rights of the caller, allow conditions as programs. */
#pragma once

#include <string>

/*
 * A message that says what is missing, or an empty one. It is measured, because a version says
 * little about a patched kernel.
 */
std::string missing_support();

/*
 * Whether this is a kernel that rejects hits for which it could not run the program, as Linux 6.10
 * and later do without the series: a hit whose condition holds may be missed there.
 */
bool may_lose_hits();
