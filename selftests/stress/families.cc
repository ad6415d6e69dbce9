// SPDX-License-Identifier: GPL-2.0
/* Actors that are several tasks: threads, children, and new programs after exec(). */
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

#include "lib/child.h"
#include "stress/scene.h"

/* The members of a family hit concurrently, and exit. */
template <typename Members> static void hit_as_family(const Part &part, Members members)
{
	constexpr uint64_t EACH = 150;
	Scene scene(part, breakpoint(hit));

	scene.event.enable();
	{
		Meddler meddler(scene);

		do {
			const uint64_t from = scene.value;

			for (uint64_t i = 0; i < 3 * EACH; i++)
				scene.count_hit(++scene.value);
			members(from, EACH);
			scene.finish_batch(false);
		} while (!over());
	}
	scene.close();
}

static void hit_range(uint64_t from, uint64_t times)
{
	for (uint64_t i = 1; i <= times; i++)
		hit(from + i);
}

/* join() returns before the thread has released its events; its id is in use until then. */
static void wait_until_gone(pid_t tid)
{
	while (!syscall(SYS_tgkill, getpid(), tid, 0))
		sched_yield();
}

void threads(const Part &part)
{
	hit_as_family(part, [](uint64_t from, uint64_t each) {
		pid_t tids[2];
		auto member = [&](int which) {
			if (which < 2)
				tids[which] = gettid();
			hit_range(from + which * each, each);
		};
		std::thread one(member, 0), two(member, 1);

		member(2);
		one.join();
		two.join();
		for (pid_t tid : tids)
			wait_until_gone(tid);
	});
}

/* With CLONE_FILES, because a child with its own descriptors would keep its parent's link open. */
static pid_t fork_to_hit(uint64_t from, uint64_t times)
{
	clone_args args = {};

	args.flags = CLONE_FILES;
	args.exit_signal = SIGCHLD;

	pid_t pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid < 0)
		setup_failed("clone3", errno);
	if (!pid) {
		uint64_t before = Signals::count(SIGTRAP);

		hit_range(from, times);
		slot->from_children += Signals::count(SIGTRAP) - before;
		_exit(0);
	}
	return pid;
}

/* This fork fails because the id is in use, but only after the child has inherited the events. */
static void fork_and_fail()
{
	const pid_t used_pid = getpid();
	clone_args args = {};

	args.flags = CLONE_FILES | CLONE_VM | CLONE_FS;
	args.exit_signal = SIGCHLD;
	args.set_tid = reinterpret_cast<uintptr_t>(&used_pid);
	args.set_tid_size = 1;
	if (syscall(SYS_clone3, &args, sizeof(args)) >= 0 || errno != EEXIST)
		setup_failed("clone3", errno);
}

static void must_exit_with_0(pid_t child, const char *what)
{
	if (int status = wait_for(child))
		error("expected exit code 0, got %s: %s", status_text(status).c_str(), what);
}

void forks(const Part &part)
{
	/* A detach races with the fork itself, so fork more often. */
	const int failing_forks =
		part.meddling && part.meddling->unpredictable & DETACHES ? 100 : 10;

	hit_as_family(part, [failing_forks](uint64_t from, uint64_t each) {
		const char *what = "a member of the family";
		pid_t one = fork_to_hit(from, each);
		pid_t two = fork_to_hit(from + each, each);

		for (int i = 0; i < failing_forks; i++)
			fork_and_fail();
		hit_range(from + 2 * each, each);
		must_exit_with_0(one, what);
		must_exit_with_0(two, what);
	});
}

/* The event survives exec(), and MODIFY_ATTRIBUTES sets its breakpoint in the new program. */
struct Executed {
	uint64_t counted, samples, sum;
};

static constexpr uint64_t EXECUTED_HITS = 300;

/* Runs in the new program. */
int hit_after_exec(int event_fd, int result, uint64_t from)
{
	Event event{ Fd(event_fd) };
	perf_event_attr attr = with_value_in_sample(breakpoint(hit));
	Ring ring(event);
	Executed executed = {};

	attr.disabled = 0;
	event.modify(attr);
	hit_range(from, EXECUTED_HITS);
	event.disable();
	ring.drain();
	executed = { event.count(), ring.samples(), ring.sum() };
	return write(result, &executed, sizeof(executed)) != sizeof(executed);
}

void execs(const Part &drawn)
{
	Part part = drawn;

	part.wakes =
		true; /* as in hit_after_exec(): MODIFY_ATTRIBUTES may change only the address */

	Scene scene(part, breakpoint(hit_other)); /* only its programs are used */
	uint64_t counted = 0, sum = 0;

	do {
		Pipe result;

		{
			Child child([&] {
				Event event(scene.attr);
				/* A copy of each without FD_CLOEXEC. */
				std::string args[] = { std::to_string(dup(event.fd())),
						       std::to_string(dup(result.in.get())),
						       std::to_string(scene.value) };

				event.must_attach(scene.first);
				execl("/proc/self/exe", "perf_bpf_stress", "--hit", args[0].c_str(),
				      args[1].c_str(), args[2].c_str(), nullptr);
				return 1;
			});

			if (child.wait())
				error("expected exit code 0, got another status: the new program");
		}
		for (uint64_t i = 0; i < EXECUTED_HITS; i++)
			scene.count_hit(++scene.value);

		Executed executed = {};

		result.in.close();
		if (read(result.out.get(), &executed, sizeof(executed)) != sizeof(executed))
			error("expected a result, got none: the new program");
		counted += executed.counted;
		scene.samples += executed.samples;
		sum += executed.sum;
	} while (!over());
	expect("hits counted", scene.tried, counted);
	expect("runs of the program", scene.tried, scene.first.globals()->runs);
	expect("misses of hits in user mode", 0, scene.first.misses());
	expect("hits that the program accepted", scene.accepted, scene.first.accepted());
	expect("samples", scene.accepted, scene.samples);
	expect_same("values of the samples", scene.sum, sum);
	slot->counts = { .hits = scene.tried,
			 .accepted = scene.accepted,
			 .rejected = counted - scene.accepted,
			 .misses = 0,
			 .samples = scene.samples,
			 .signals = 0,
			 .traps = 0,
			 .hups = 0,
			 .lost = slot->counts.lost,
			 .extra = slot->counts.extra };
	slot->closed = true;
}
