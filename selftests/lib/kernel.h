/* SPDX-License-Identifier: GPL-2.0 */
/* Properties of the running kernel, and its log. */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/* By the version in uname(2): for behaviour that cannot be detected in another way. */
bool kernel_before(int major, int minor);

/* PREEMPT_RT. */
bool kernel_is_realtime();

/*
 * kernel_lockdown(7): "integrity", "confidentiality" or "". In confidentiality mode root cannot use
 * anything that shows kernel memory: kprobes, tracefs and bpf_probe_read_kernel().
 */
std::string kernel_lockdown();

/* The addresses of kernel symbols in /proc/kallsyms, as far as it shows them. */
std::vector<uint64_t> kernel_addresses(const std::vector<std::string> &names);
/* The address of a kernel function, or 0. */
uint64_t kernel_address_of(const std::string &function);

/*
 * Writes a line to the kernel log if that is permitted. It names the test that was running when a
 * splat occurred: the scripts look for "perf_bpf_filter: test NAME".
 */
void tell_kernel_log(const std::string &line);
