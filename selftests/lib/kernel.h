/* SPDX-License-Identifier: GPL-2.0 */
/* Properties of the running kernel, and its log. */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/* Compares the version in uname(2). Use it only for behaviour that cannot be detected. */
bool kernel_before(int major, int minor);

/* Whether the kernel is PREEMPT_RT. */
bool kernel_is_realtime();

/*
 * kernel_lockdown(7): "integrity", "confidentiality" or "". In confidentiality mode root cannot use
 * anything that shows kernel memory: kprobes, tracefs and bpf_probe_read_kernel().
 */
std::string kernel_lockdown();

/* The addresses of kernel symbols. Those that /proc/kallsyms lacks or hides are left out. */
std::vector<uint64_t> kernel_addresses(const std::vector<std::string> &names);
/* The address of a kernel function, or 0. */
uint64_t kernel_address_of(const std::string &function);

/*
 * Writes a line to the kernel log if that is permitted. The scripts look for the last
 * "perf_bpf_filter: test NAME" before a splat to find the test that was running.
 */
void write_kernel_log(const std::string &line);
