/* SPDX-License-Identifier: GPL-2.0 */
/* What the running kernel is, and its log. */
#pragma once

#include <cstdint>
#include <string>
#include <vector>

/* By the version that uname(2) gives: for what it does, and none can ask it. */
bool kernel_before(int major, int minor);

/* PREEMPT_RT. */
bool kernel_is_realtime();

/*
 * kernel_lockdown(7): "integrity" or "confidentiality", or nothing. The latter refuses root whatever shows the kernel's
 * memory: kprobes, tracefs and bpf_probe_read_kernel().
 */
std::string kernel_lockdown();

/* In the kernel's text or data, as /proc/kallsyms has it: none if it does not say. */
std::vector<uint64_t> kernel_addresses(const std::vector<std::string> &names);
/* Of a function; 0 if it does not say. */
uint64_t kernel_address_of(const std::string &function);

/*
 * A line in its log, by which whoever reads of a splat sees what ran: scripts look for
 * "perf_bpf_filter: test NAME". Without the right to write there is none.
 */
void tell_kernel_log(const std::string &line);
