/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How a process ends that cannot measure. Each program defines setup_failed() and unavailable(),
 * which are called in the child that measures. In all of lib/, a function calls one of them if
 * its failure means that nothing can be measured, and returns 0 or an errno if the errno is the
 * result. errno is never read after a call that has succeeded.
 */
#pragma once

#include <string>

/* Something that should work does not: @what failed with the errno @err. */
[[noreturn]] void setup_failed(const char *what, int err);

/* The kernel or the machine lacks what is to be measured. */
[[noreturn]] void unavailable(const char *reason);

/* An errno as messages have it: "EINVAL", or "success" for 0. */
std::string errno_name(int err);

/* "20 runs of the program", but "1 run of the program". @things is a plural. */
std::string quantity(const std::string &number, const std::string &things);
