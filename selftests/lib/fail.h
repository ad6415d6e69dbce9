/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a process ends that cannot measure. Each program defines the two; they are called in the
 * child that measures. All of lib/ keeps to this: a call whose failure means that nothing can be
 * measured ends in one of them, a call whose errno is a result returns 0 or that errno. After a
 * call that succeeded errno holds leftovers, and nobody looks at it.
 */
#pragma once

/* What should work does not: @what, with the errno @err. */
[[noreturn]] void setup_failed(const char *what, int err);

/* The kernel or the machine lacks what is to be measured. */
[[noreturn]] void unavailable(const char *reason);
