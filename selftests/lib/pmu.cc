// SPDX-License-Identifier: GPL-2.0
#include "lib/pmu.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

#include "lib/fail.h"
#include "lib/kernel.h"

/* @otherwise is the reason if the PMU is loaded. */
[[noreturn]] static void lacks_pmu(const char *otherwise)
{
	unavailable(pmu_type()			? otherwise
		    : kernel_lockdown().empty() ? "the test PMU is not loaded; run insmod "
						  "module/perf_bpf_pmu.ko as root"
						: "kernel lockdown refuses the test PMU");
}

static std::string file_of(Context context)
{
	return std::string("/sys/kernel/debug/perf_bpf_pmu/") + contexts[context];
}

std::vector<Context> usable_contexts()
{
	std::vector<Context> usable;

	for (Context context : { NMI, IRQ, TASK })
		if (!access(file_of(context).c_str(), W_OK))
			usable.push_back(context);
	return usable;
}

static uint32_t type_of(const std::string &pmu)
{
	uint32_t type = 0;

	std::ifstream("/sys/bus/event_source/devices/" + pmu + "/type") >> type;
	return type;
}

uint32_t pmu_type()
{
	return usable_contexts().empty() ? 0 : type_of("perf_bpf_pmu");
}

perf_event_attr hardware(uint64_t config)
{
	perf_event_attr attr = software(config, 1);

	attr.type = pmu_type();
	if (!attr.type)
		lacks_pmu("the test PMU cannot be used");
	attr.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_ADDR;
	attr.wakeup_events = 1;
	attr.exclude_hv = 1;
	return attr;
}

Hits::Hits(Context context)
	: file_(open(file_of(context).c_str(), O_WRONLY | O_CLOEXEC))
{
	if (!file_.valid())
		lacks_pmu("the test PMU cannot raise an NMI here");
	rate_ = std::make_unique<EnoughSampling>();
}

void Hits::make(uint64_t hits, int cpu) const
{
	char text[32];
	int length = cpu < 0 ? snprintf(text, sizeof(text), "%d", int(hits))
			     : snprintf(text, sizeof(text), "%d %d", int(hits), cpu);

	if (write(file_.get(), text, length) != length)
		setup_failed("write to a file of perf_bpf_pmu", errno);
}

void Hits::make_in(const char *function) const
{
	const Fd file(open("/sys/kernel/debug/perf_bpf_pmu/nmi_in", O_WRONLY | O_CLOEXEC));
	const ssize_t length = strlen(function);

	if (!file.valid())
		lacks_pmu("the test PMU cannot raise an NMI here");
	if (write(file.get(), function, length) != length)
		unavailable("the kernel has no kprobe on the function");
}

uint64_t kgdb_hits()
{
	std::ifstream file("/sys/kernel/debug/perf_bpf_pmu/kgdb");
	uint64_t hits;

	if (!file.is_open())
		lacks_pmu("kgdb has no hardware breakpoints in perf here");
	if (!(file >> hits))
		setup_failed("read of a file of perf_bpf_pmu", errno);
	return hits;
}

RemovablePmu::RemovablePmu()
	: file_(open("/sys/kernel/debug/perf_bpf_pmu/visitor", O_WRONLY | O_CLOEXEC))
{
	if (!file_.valid())
		lacks_pmu("a PMU that has events cannot be unregistered before Linux 6.15");
}

RemovablePmu::~RemovablePmu()
{
	if (registered_)
		unregister_pmu();
}

void RemovablePmu::write_command(const char *what)
{
	if (write(file_.get(), what, 1) != 1)
		setup_failed("write to perf_bpf_pmu/visitor", errno);
}

void RemovablePmu::register_pmu()
{
	write_command("1");
	registered_ = true;
}

void RemovablePmu::unregister_pmu()
{
	write_command("0");
	registered_ = false;
}

perf_event_attr RemovablePmu::counter() const
{
	perf_event_attr attr = software(0);

	attr.type = type_of("perf_bpf_visitor");
	return attr;
}
