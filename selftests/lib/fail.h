/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ends a process that cannot measure. Each program defines setup_failed() and unavailable(), which
 * are called in the child that measures. A function in lib/ calls one of them if its failure means
 * that nothing can be measured. If the errno itself is a result, the function returns 0 or the
 * errno. Nothing reads errno after a call that has succeeded.
 */
#pragma once

#include <string>

/* @what, which should work, has failed with the errno @err. */
[[noreturn]] void setup_failed(const char *what, int err);

/* The kernel or the machine lacks what is to be measured. */
[[noreturn]] void unavailable(const char *reason);

/* The name of an errno for messages: "EINVAL", or "success" for 0. */
std::string errno_name(int err);

/* "20 runs of the program", but "1 run of the program". @things is a plural. */
std::string quantity(const std::string &number, const std::string &things);
