// SPDX-License-Identifier: GPL-2.0
/*
 * Hits filtered breakpoints under all kinds of interference, with an oracle.
 *
 * The program accepts a hit by a hash of the hit's value, so that the task that hits can predict
 * what must be delivered. A round consists of actors and noise. Each actor is a process that hits
 * and then compares its counts, and may have a thread that meddles with its event. The parts of a
 * round are drawn from tables by the seed of the round. The counts must show exactly:
 *
 *	accepted = delivered, rejected = invisible, counted = all
 *
 * Do not run this on a machine that you need: it can crash a kernel without the series.
 */
#include <bpf/bpf.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include <kselftest.h>

#include "lib/arch.h"
#include "lib/args.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/effects.h"
#include "lib/kernel.h"
#include "lib/signals.h"
#include "lib/sysctl.h"
#include "stress/machine.h"
#include "stress/scene.h"

static bool possible(const Actor &actor)
{
	return (!actor.is(NEEDS_MISSES) || machine.misses) &&
	       (!actor.is(NEEDS_PMU) || machine.pmu) &&
	       (!actor.is(NEEDS_WATCHED_KERNEL) || WATCHES_KERNEL);
}

static const Actor &draw_actor(Random &random)
{
	unsigned all = 0;

	for (auto &actor : actors())
		all += possible(actor) ? actor.weight : 0;

	uint64_t n = random.below(all);

	for (auto &actor : actors()) {
		if (!possible(actor))
			continue;
		if (n < actor.weight)
			return actor;
		n -= actor.weight;
	}
	__builtin_unreachable();
}

static Part draw(Random &random, bool stats)
{
	/* Reject most hits, because rejected hits are fast. */
	static constexpr uint64_t masks[] = { 0, 7, 63, 63, 63, 1023, 1023, UINT32_MAX };
	const Actor &actor = draw_actor(random);
	Part part = {};

	part.actor = &actor;
	part.stats = stats;
	part.seed = random.next();
	part.mask = masks[random.below(std::size(masks))];
	part.effects = random.next() & actor.effects & (SAMPLES | SIGNALS | TRAPS);
	if (!machine.sigtrap)
		part.effects &= ~TRAPS;
	part.cpu = random.one_in(2) ? machine.cpus[random.below(machine.cpus.size())] : -1;
	part.wakes = random.one_in(2);
	part.by_link = random.one_in(2) && machine.links;

	const Meddling &meddling = meddlings()[random.below(meddlings().size())];

	if (actor.is(MEDDLED) && random.one_in(2) &&
	    !(meddling.of_breakpoints && actor.is(NEEDS_PMU)) &&
	    meddling.possible_if(part.effects, actor.is(INHERITED)))
		part.meddling = &meddling;

	const uint32_t unpredictable = part.meddling ? part.meddling->unpredictable : 0;
	const bool alone = actor.is(MEDDLED) && !actor.is(INHERITED);

	if (unpredictable & DETACHES)
		part.mask = 0;
	if (actor.is(ALL_EFFECTS))
		part.effects = actor.effects;
	part.blocks_signals = alone && random.one_in(4) && part.effects & (SIGNALS | TRAPS) &&
			      !(unpredictable & DETACHES);
	part.overfills_ring = alone && random.one_in(8) && part.effects & SAMPLES && !part.meddling;
	return part;
}

static std::string describe(const Part &part)
{
	std::string text = part.actor->name;

	for (auto [effect, name] : { std::pair(SAMPLES, "samples"), std::pair(SIGNALS, "signals"),
				     std::pair(TRAPS, "SIGTRAPs") })
		if (part.effects & effect)
			text = text + " " + name;
	if (part.mask == UINT32_MAX)
		text += ", none accepted";
	else if (part.actor->is(ACCEPTS_ALL) || !part.mask)
		text += ", all accepted";
	else
		text += ", one in " + std::to_string(part.mask + 1);
	if (part.blocks_signals)
		text += ", blocks";
	if (part.overfills_ring)
		text += ", ring full";
	if (part.meddling)
		text = text + ", " + part.meddling->name;
	return text;
}

/* Forks a process that runs @body with the slot @its, and is killed after @seconds. */
template <typename Body> static void begin(Slot &its, unsigned seconds, Body body)
{
	pid_t pid = fork();

	if (pid < 0)
		setup_failed("fork", errno);
	if (pid) {
		its.pid = pid;
		return;
	}
	slot = &its;
	alarm(seconds);
	body();
	_exit(0);
}

/* Waits for the process, and returns what is wrong with it, or "". */
static std::string end(Slot &its)
{
	const int status = wait_for(its.pid);

	if (its.first_error[0])
		return its.first_error;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? "hangs" : status_text(status);
	return status ? "expected exit code 0, got " + status_text(status) : "";
}

static bool run_round(uint64_t number, uint64_t seed, double seconds, Counts &sum)
{
	Random random(seed);
	const bool stats = random.one_in(4);
	Fd stats_fd(stats ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1);
	Part parts[MAX_SLOTS];
	int num_actors = 1 + random.below(machine.cpus.size() + 1), n = num_actors;
	std::string what, wrong;
	std::vector<const Noise *> making;
	Counts counts = {};
	bool unplugs = false, probes = false;

	num_actors = n = std::min(n, MAX_SLOTS / 2);
	memset(static_cast<void *>(shared), 0, sizeof(*shared));
	shared->actors = num_actors;

	char name[40];

	snprintf(name, sizeof(name), "stress.%#lx", seed);
	write_kernel_log(std::string("perf_bpf_filter: test ") + name);
	for (int i = 0; i < num_actors; i++) {
		parts[i] = draw(random, stats && stats_fd.valid());
		what += (i ? "; " : "") + describe(parts[i]);
	}
	for (auto &noise : noises()) {
		/*
		 * Draw even a noise that is impossible here, so that a seed means the same on all
		 * machines.
		 * Clocks that starve a CPU which goes offline make the scheduler of 6.12 warn that
		 * the CPU is not vacated, with and without the series.
		 */
		if (random.one_in(6) && (!noise.possible || noise.possible()) &&
		    !(noise.flags & STARVES && unplugs) && n < MAX_SLOTS) {
			unplugs |= noise.flags & UNPLUGS;
			probes |= noise.flags & OUTLASTS;
			what = what + (n == num_actors ? " | " : ", ") + noise.name;
			making.push_back(&noise);
			n++;
		}
	}

	const unsigned patience = seconds + 60;

	auto begin_noise = [&](bool probing) {
		for (int i = num_actors; i < n; i++)
			if (bool(making[i - num_actors]->flags & OUTLASTS) == probing)
				begin(shared->slots[i], patience,
				      [&random, noise = making[i - num_actors]] {
					      while (!over())
						      noise->make(random);
				      });
	};

	begin_noise(true);
	for (double end = seconds_now() + 10; probes && !shared->probed && seconds_now() < end;)
		usleep(1000);
	for (int i = 0; i < num_actors; i++)
		begin(shared->slots[i], patience, [&part = parts[i]] {
			if (part.cpu >= 0)
				prefer_cpu(0, part.cpu);
			part.actor->run(part);
		});
	begin_noise(false);
	usleep(seconds * 1e6);
	shared->stop = true;

	for (int i = 0; i < n; i++) {
		Slot &its = shared->slots[i];

		if (i == n - 1)
			shared->ended = true;

		std::string ended = end(its);

		if (ended.empty() && i < num_actors && !its.closed)
			ended = "expected a result, got none";
		/* Each actor hits at least once, however late it is scheduled. */
		if (ended.empty() && i < num_actors && !its.counts.hits && !parts[i].misses_hits())
			ended = "expected hits, got none";
		if (!ended.empty())
			wrong = wrong + "# " +
				(i < num_actors ? describe(parts[i])
						: making[i - num_actors]->name) +
				": " + ended + "\n";
		add(counts, its.counts);
	}
	printf("%s %lu %#lx %s\n", wrong.empty() ? "ok" : "not ok", number, seed, what.c_str());
	if (!wrong.empty())
		printf("%s# to repeat: perf_bpf_stress --seed %#lx --rounds 1\n", wrong.c_str(),
		       seed);
	print_counts("round", counts);
	fflush(stdout);
	add(sum, counts);
	return wrong.empty();
}

static const char usage[] =
	"usage: perf_bpf_stress [--seed N] [--seconds N] [--rounds N] [--hotplug]\n"
	"Hits filtered breakpoints under all kinds of interference, compares the expected with\n"
	"the actual effects, and prints KTAP. It can crash a kernel without the series.\n"
	"  --seed N     the seed of the first round, to repeat a run (default: the time)\n"
	"  --seconds N  run for N seconds (default 10)\n"
	"  --rounds N   stop after N rounds\n"
	"  --hotplug    also turn CPUs off and on\n";

int main(int argc, char **argv)
{
	constexpr double ROUND_SECONDS = 2;
	uint64_t seed = time(nullptr), seconds = 10, rounds = UINT64_MAX, done = 0, failed = 0;

	/* All overflows of one actor have the same user registers, those of a system call. */
	Signals::ends_storms = false;

	if (argc == 5 && !strcmp(argv[1], "--hit"))
		return hit_after_exec(atoi(argv[2]), atoi(argv[3]), strtoull(argv[4], nullptr, 10));
	if (char **more = parse_arguments(argc, argv, usage,
					  { { "seed", nullptr, &seed },
					    { "seconds", nullptr, &seconds },
					    { "rounds", nullptr, &rounds },
					    { "hotplug", &machine.may_unplug } });
	    *more)
		bad_usage("unknown argument ", *more);

	const rlimit many = { 100'000, 100'000 };
	Counts sum = {};

	shared = &shared_with_children<Shared>();
	/* Queued signals are charged to the user, and all actors have the same user. */
	setrlimit(RLIMIT_SIGPENDING, &many);
	signal(SIGUSR1, [](int) {});
	if (const char *why = why_not_hit(); *why) {
		printf("TAP version 13\n1..0 # SKIP %s\n", why);
		return KSFT_SKIP;
	}
	detect_machine();

	/*
	 * The kernel patches its context switch when the first event is opened and after the last
	 * one is closed. Keep one open, because of the QEMU bug that step_in() describes.
	 */
	const Event last(breakpoint(hit_other));

	/* Counters that are hit as fast as possible must not be throttled. */
	std::optional<Sysctl> rate;

	if (machine.pmu)
		machine.pmu = rate.emplace("kernel/perf_event_max_sample_rate").set(100'000'000);

	printf("TAP version 13\n# seed %#lx, %zu CPUs\n", seed, machine.cpus.size());
	fflush(stdout);
	for (double begin = seconds_now(); done < rounds && seconds_now() - begin < seconds;) {
		failed += !run_round(++done, seed, ROUND_SECONDS, sum);
		seed = Random(seed).next();
	}
	printf("1..%lu\n", done);
	print_counts("all", sum);
	printf("# %lu rounds, %lu failed\n", done, failed);
	return failed || !sum.hits ? 1 : 0;
}
