// SPDX-License-Identifier: GPL-2.0
#include "lib/filter.h"

#include <bpf/bpf.h>

#include <cstring>

#include "lib/kernel.h"
#include "lib/program.h"

#include <filter.skel.h>

/* Names of the programs in the order of enum Program. */
static constexpr const char *names[] = {
	"on_overflow",	 "on_tracepoint",    "on_kprobe",	  "on_raw_tracepoint",
	"looks",	 "reads_cookie",     "checks_cookie",	  "gets_stack",
	"gets_stack_id", "gets_frame",	     "outputs_sample",	  "prints",
	"prints_alone",	 "gets_task_stack",  "fills_ringbuf",	  "tail_calls",
	"sends_signal",	 "reads_sample",     "reads_sample_text", "calls_replaceable",
	"works",	 "passes_untrusted", "replaces",	  "traces",
};

/* Calls unavailable() if the kernel lacks something that the program requires. */
static void look_for(Program which)
{
	if ((which == Program::READS_COOKIE || which == Program::CHECKS_COOKIE) &&
	    !libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_get_attach_cookie, nullptr))
		unavailable("the kernel has no bpf_get_attach_cookie (it came with 5.15)");
	if ((which == Program::READS_SAMPLE || which == Program::READS_SAMPLE_TEXT ||
	     which >= Program::REPLACES) &&
	    kernel_lockdown() == "confidentiality")
		unavailable("kernel lockdown refuses bpf_probe_read_kernel()");
	if (which == Program::PASSES_UNTRUSTED && kernel_before(6, 17))
		unavailable("the kernel has no untrusted arguments (they came with 6.17)");
	if (which == Program::GETS_TASK_STACK &&
	    !libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_get_current_task_btf,
				     nullptr))
		unavailable("the kernel has no bpf_get_current_task_btf (it came with 5.11)");
	if ((which == Program::GETS_TASK_STACK || which == Program::CALLS_REPLACEABLE ||
	     which >= Program::PASSES_UNTRUSTED) &&
	    access("/sys/kernel/btf/vmlinux", F_OK))
		unavailable("the kernel has no BTF (CONFIG_DEBUG_INFO_BTF)");
}

Filter::Filter(Program which, const Filter *target)
{
	const bool tail_calls = which == Program::TAIL_CALLS;

	auto prepare = [&](filter &skel) {
		bpf_program__set_autoload(skel.progs.on_overflow,
					  tail_calls || which == Program::ON_OVERFLOW);
		bpf_map__set_autocreate(skel.maps.targets, tail_calls);
		bpf_map__set_autocreate(skel.maps.stacks, which == Program::GETS_STACK_ID);
		bpf_map__set_autocreate(skel.maps.values, which == Program::FILLS_RINGBUF);
		bpf_map__set_autocreate(skel.maps.outputs, which == Program::OUTPUTS_SAMPLE);
		bpf_map__set_autocreate(skel.maps.blocks, which == Program::WORKS);
		look_for(which);

		bpf_program *linked =
			which == Program::TRACES ? skel.progs.traces : skel.progs.replaces;

		if (target &&
		    bpf_program__set_attach_target(linked, target->prog_fd(), "can_be_replaced"))
			setup_failed("bpf() to load the program", errno);
	};
	auto refused = [](int err) {
		if (err == EPERM)
			unavailable("a program that replaces another one requires CAP_NET_ADMIN");
	};

	program_ = std::make_unique<Loaded<filter>>(names[static_cast<int>(which)], prepare,
						    target ? +refused : nullptr);
	if (tail_calls)
		set_callee(bpf_program__fd((*program_)->progs.on_overflow));
	(*program_)->bss->tgid = getpid();
}

Filter::~Filter() = default;

int Filter::prog_fd() const
{
	return program_->prog_fd();
}

void Filter::returns(uint32_t verdict)
{
	returns_if(verdict, FILTER_ALWAYS, 0);
}

void Filter::returns_if(uint32_t verdict, enum filter_condition what, uint64_t wanted)
{
	volatile auto *globals = program_->globals();

	globals->verdict = verdict;
	globals->condition = what;
	globals->wanted = wanted;
}

void Filter::checks(uint64_t cookie, uint64_t ns)
{
	volatile auto *globals = program_->globals();

	globals->wanted = cookie;
	globals->spin_ns = ns;
}

void Filter::set_callee(int fd)
{
	uint32_t slot = 0;

	if (int err = bpf_map_update_elem(bpf_map__fd((*program_)->maps.targets), &slot, &fd, 0))
		setup_failed("bpf() to set the tail call", -err);
}

void Filter::tail_calls(const Filter &callee)
{
	set_callee(callee.prog_fd());
}

void Filter::outputs_to(const Event &event)
{
	uint32_t slot = 0;
	int fd = event.fd();

	if (int err = bpf_map_update_elem(bpf_map__fd((*program_)->maps.outputs), &slot, &fd, 0))
		setup_failed("bpf() to set the event for bpf_perf_event_output()", -err);
}

Fd Filter::link_to_target()
{
	int fd = bpf_link_create(prog_fd(), 0, BPF_TRACE_FENTRY, nullptr);

	if (fd < 0)
		setup_failed("bpf_link_create to a function of a program", -fd);
	return Fd(fd);
}

void Filter::works(const void *block, uint64_t times)
{
	volatile auto *globals = program_->globals();

	globals->wanted = reinterpret_cast<uintptr_t>(block);
	globals->work = times;
}

uint64_t Filter::runs() const
{
	return __atomic_load_n(&(*program_)->bss->runs, __ATOMIC_RELAXED);
}

filter_snapshot Filter::snapshot() const
{
	filter_snapshot snapshot;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	memcpy(&snapshot, &(*program_)->bss->snapshot, sizeof(snapshot));
	return snapshot;
}

std::vector<uint64_t> Filter::take() const
{
	std::vector<uint64_t> values;
	auto on_value = [](void *values, void *data, size_t) {
		static_cast<std::vector<uint64_t> *>(values)->push_back(
			*static_cast<uint64_t *>(data));
		return 0;
	};
	ring_buffer *reader =
		ring_buffer__new(bpf_map__fd((*program_)->maps.values), on_value, &values, nullptr);

	if (!reader)
		setup_failed("ring_buffer__new", errno);
	ring_buffer__consume(reader);
	ring_buffer__free(reader);
	return values;
}

bool Filter::can_link() const
{
	return ::can_link(prog_fd());
}

Fd Filter::link(const Event &event, int *err, uint64_t cookie) const
{
	if (!can_link())
		unavailable("the kernel has no BPF links for perf events (they came with 5.15)");

	Fd link = create_link(prog_fd(), event, cookie);

	*err = link.valid() ? 0 : errno;
	return link;
}

Fd Filter::link(const Event &event) const
{
	int err;
	Fd link = this->link(event, &err);

	if (!link.valid())
		setup_failed("bpf_link_create", err);
	return link;
}
