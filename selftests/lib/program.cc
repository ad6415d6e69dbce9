// SPDX-License-Identifier: GPL-2.0
#include "lib/program.h"

#include <bpf/bpf.h>

#include <cstring>
#include <iterator>
#include <vector>

#include "lib/kernel.h"

/*
 * libbpf probes for bpf_probe_read_kernel(), which the kernel refuses under
 * lockdown=confidentiality. libbpf then assumes a kernel before 5.5 and replaces
 * bpf_probe_read_user(), which lockdown allows, with bpf_probe_read(), which lockdown refuses. Undo
 * that: no program here calls bpf_probe_read() itself, and programs with bpf_probe_read_kernel()
 * are not loaded under lockdown, see look_for().
 */
static int restore_user_reads(bpf_program *program, bpf_prog_load_opts *, long)
{
	const bpf_insn *loaded = bpf_program__insns(program);
	std::vector<bpf_insn> insns(loaded, loaded + bpf_program__insn_cnt(program));

	for (bpf_insn &insn : insns)
		if (insn.code == (BPF_JMP | BPF_CALL) && !insn.src_reg &&
		    insn.imm == BPF_FUNC_probe_read)
			insn.imm = BPF_FUNC_probe_read_user;
	return bpf_program__set_insns(program, insns.data(), insns.size());
}

void set_up_libbpf()
{
	LIBBPF_OPTS(libbpf_prog_handler_opts, opts, .prog_prepare_load_fn = restore_user_reads);
	static const int handler = libbpf_register_prog_handler(
		"perf_event", BPF_PROG_TYPE_PERF_EVENT, bpf_attach_type(0), &opts);

	if (handler < 0)
		setup_failed("libbpf_register_prog_handler", -handler);
	libbpf_set_print(nullptr);
}

bpf_program *choose_program(bpf_object *object, const char *name)
{
	bpf_program *program, *chosen = nullptr;

	bpf_object__for_each_program(program, object)
	{
		const bool selected = !strcmp(bpf_program__name(program), name);

		bpf_program__set_autoload(program, selected);
		if (selected)
			chosen = program;
	}
	return chosen;
}

Fd try_least(int32_t verdict)
{
	const bpf_insn insns[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K,
		  .dst_reg = 0,
		  .src_reg = 0,
		  .off = 0,
		  .imm = verdict },
		{ .code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0 },
	};

	return Fd(bpf_prog_load(BPF_PROG_TYPE_PERF_EVENT, "least", "GPL", insns, std::size(insns),
				nullptr));
}

Fd load_least(int32_t verdict)
{
	Fd prog = try_least(verdict);

	if (!prog.valid())
		setup_failed("bpf_prog_load", errno);
	return prog;
}

/* @size returns the number of bytes that the kernel has filled in. */
static bpf_prog_info ask_about(int prog_fd, uint32_t &size)
{
	bpf_prog_info info = {};

	size = sizeof(info);
	if (bpf_obj_get_info_by_fd(prog_fd, &info, &size))
		setup_failed("BPF_OBJ_GET_INFO_BY_FD", errno);
	return info;
}

bpf_prog_info info_of_program(int prog_fd)
{
	uint32_t size;

	return ask_about(prog_fd, size);
}

bool program_exists(uint32_t id)
{
	uint32_t next = id - 1;

	if (Fd(bpf_prog_get_fd_by_id(id)).valid())
		return true;
	if (!bpf_prog_get_next_id(next, &next))
		return next == id;
	if (errno == EPERM)
		setup_failed("BPF_PROG_GET_NEXT_ID", errno);
	return false;
}

bool wait_until_freed(uint32_t id)
{
	for (int tries = 0; tries < 1000; tries++) {
		if (!program_exists(id))
			return true;
		usleep(10'000);
	}
	return false;
}

std::optional<uint64_t> misses_of_program(int prog_fd)
{
	uint32_t size;
	const bpf_prog_info info = ask_about(prog_fd, size);

	if (size < offsetof(bpf_prog_info, recursion_misses) + sizeof(info.recursion_misses) &&
	    kernel_before(5, 12))
		return {};
	return info.recursion_misses;
}

bool can_link(int prog_fd)
{
	/* With perf links the bad fd fails with EBADF, without them the type with EINVAL. */
	return !kernel_before(5, 15) ||
	       bpf_link_create(prog_fd, -1, BPF_PERF_EVENT, nullptr) != -EINVAL;
}

Fd create_link(int prog_fd, const Event &event, uint64_t cookie)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event = { .bpf_cookie = cookie });

	return Fd(bpf_link_create(prog_fd, event.fd(), BPF_PERF_EVENT, &opts));
}

Fd must_link(int prog_fd, const Event &event, uint64_t cookie)
{
	Fd link = create_link(prog_fd, event, cookie);

	if (!link.valid())
		setup_failed("bpf_link_create", errno);
	return link;
}
