// SPDX-License-Identifier: GPL-2.0
/* Disturbances that do not act on an actor's event. */
#include <bpf/bpf.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "lib/child.h"
#include "stress/machine.h"
#include "stress/scene.h"

static pid_t some_actor(Random &random)
{
	return shared->slots[random.below(shared->actors)].pid;
}

/* bpf(2) copies the value with bpf_prog_active raised, on each CPU. */
static void look_up(Random &)
{
	constexpr size_t VALUE = 1 << 16;
	Fd map(bpf_map_create(BPF_MAP_TYPE_ARRAY, nullptr, sizeof(uint32_t), VALUE, 1, nullptr));
	std::vector<std::thread> threads;

	if (!map.valid())
		setup_failed("bpf_map_create", errno);
	for (int cpu : machine.cpus)
		threads.emplace_back([cpu, &map] {
			std::vector<char> value(VALUE);
			const uint32_t key = 0;

			prefer_cpu(0, cpu);
			for (uint64_t i = 0; !over(); i++)
				if (i % 2)
					bpf_map_update_elem(map.get(), &key, value.data(), 0);
				else
					bpf_map_lookup_elem(map.get(), &key, value.data());
		});
	for (auto &thread : threads)
		thread.join();
}

/*
 * Before 5.13, kprobes single-step the probed instruction with a debug trap, which would overwrite
 * the stack of the debug trap of a hit in kernel mode. attr.sigtrap is as old as the fix.
 */
static bool can_step()
{
	return machine.sigtrap;
}

/*
 * The kprobes are attached before the actors start and detached after they have ended: QEMU before
 * 8.1 may translate an instruction while the kernel patches it, and keep the stale translation. A
 * CPU that executes a stale int3 oopses, or jumps to address 0 if an ftrace-based kprobe, which has
 * no copy of the instruction, is there.
 */
static void step_in(Random &random)
{
	static const char *const functions[] = { "perf_bp_event", "perf_swevent_set_period",
						 "perf_output_begin_forward", "send_sigio" };
	const Decider stepping("steps_in");
	/* Some kernels do not have all of these functions, or inline them. */
	Kprobe one(stepping, functions[random.below(std::size(functions))]);
	Kprobe two(stepping, functions[random.below(std::size(functions))]);

	shared->probed = true;
	while (!shared->ended)
		usleep(1000);
}

static void set_online(int cpu, bool online)
{
	std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/online";
	Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));

	if (file.valid() && write(file.get(), online ? "1" : "0", 1) != 1)
		usleep(10'000);
}

static bool can_unplug()
{
	return machine.may_unplug && machine.cpus.size() > 1 &&
	       !access("/sys/devices/system/cpu/cpu1/online", W_OK);
}

static void unplug(Random &random)
{
	int cpu = machine.cpus[1 + random.below(machine.cpus.size() - 1)];

	set_online(cpu, false);
	usleep(random.below(20'000));
	set_online(cpu, true);
	usleep(random.below(100'000));
}

static void fork_and_exit(Random &random)
{
	Child child([] {
		std::thread([] {}).join();
		return 0;
	});

	usleep(random.below(1000));
	child.wait();
}

static void interrupt(Random &random)
{
	std::vector<Fd> clocks;
	perf_event_attr attr = software(PERF_COUNT_SW_CPU_CLOCK, 500'000);

	attr.disabled = 0;

	/* A CPU may be offline now, so errors are ignored. */
	for (int cpu : machine.cpus)
		clocks.push_back(open_event(attr, -1, cpu));
	usleep(random.below(100'000));
}

/* Breakpoints on the tasks that hit, which change their contexts and debug registers. */
static void open_neighbour(Random &random)
{
	perf_event_attr attr = breakpoint(hit_other);

	attr.disabled = 0;

	Fd other = open_event(attr, some_actor(random));

	pause_a_little(random);
}

static void move(Random &random)
{
	prefer_cpu(some_actor(random), machine.cpus[random.below(machine.cpus.size())]);
	pause_a_little(random);
}

static void poke(Random &random)
{
	kill(some_actor(random), SIGUSR1);
	pause_a_little(random);
}

/* The noises are drawn, and end, in this order. */
static const Noise all[] = {
	{ "lookups", look_up },
	{ "hotplug", unplug, UNPLUGS, can_unplug },
	{ "forking", fork_and_exit },
	{ "clocks", interrupt, STARVES },
	{ "neighbours", open_neighbour },
	{ "moves", move },
	{ "pokes", poke },
	{ "kprobes", step_in, OUTLASTS, can_step },
};

std::span<const Noise> noises()
{
	return all;
}
