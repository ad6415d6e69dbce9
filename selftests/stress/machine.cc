// SPDX-License-Identifier: GPL-2.0
#include "stress/machine.h"

#include <sched.h>

#include "lib/cpus.h"
#include "lib/event.h"
#include "lib/kernel.h"
#include "lib/pmu.h"
#include "lib/program.h"
#include "stress/decider.h"

Machine machine;

void detect_machine()
{
	machine.cpus = usable_cpus();
	machine.sigtrap = has_sigtrap();
	machine.pmu = pmu_type();
	machine.misses_deliver = kernel_before(6, 10);
	machine.merges_signals = kernel_is_realtime();
	machine.cookies = libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT,
						  BPF_FUNC_get_attach_cookie, nullptr) == 1;

	Decider program(0, 0, 0, false);

	machine.links = can_link(program.prog_fd());
	machine.misses = misses_of_program(program.prog_fd()).has_value();
}

void prefer_cpu(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int each : machine.cpus)
		if (cpu < 0 || each == cpu)
			CPU_SET(each, &set);
	sched_setaffinity(pid, sizeof(set), &set);
}
