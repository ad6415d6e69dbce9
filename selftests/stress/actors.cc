// SPDX-License-Identifier: GPL-2.0
/* Actors that are a single task, and the table of all actors. */
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "lib/pmu.h"
#include "stress/machine.h"
#include "stress/scene.h"

/* One task hits as fast as it can. */
template <typename Hit> static void hit_alone(const Part &part, perf_event_attr attr, Hit hit)
{
	Scene scene(part, attr);

	scene.event.enable();
	{
		Meddler meddler(scene);

		do
			scene.batch(hit, BATCH);
		while (!over());
	}
	scene.close(hit);
}

static void calls(const Part &part)
{
	hit_alone(part, breakpoint(hit), hit);
}

static void stores(const Part &part)
{
	hit_alone(part, breakpoint(Access::WRITE, &word, 8),
		  [](uint64_t value) { store(value, &word); });
}

/* The kernel writes the word in a system call: only one byte, so that it is one hit. */
static void syscalls(const Part &part)
{
	Fd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));

	if (!zero.valid())
		setup_failed("/dev/zero", errno);
	hit_alone(part, breakpoint(Access::WRITE, &word, 1), [&zero](uint64_t) {
		if (read(zero.get(), const_cast<uint64_t *>(&word), 1) != 1)
			setup_failed("read of /dev/zero", errno);
	});
}

/*
 * A hardware counter in kernel mode. With a meddler it is not hit in NMIs, because an NMI that
 * interrupts a change of the event is not counted.
 */
static void overflows(const Part &part)
{
	std::vector<Context> contexts = usable_contexts();

	if (part.meddling)
		std::erase(contexts, NMI);

	const Hits hits(contexts[part.seed % contexts.size()]);

	hit_alone(part, hardware(), [&hits](uint64_t) { hits.make(1); });
}

static uint64_t count_hups()
{
	return Signals::count(SETSIG, POLL_HUP);
}

/* An event with a limit: the accepted hit that uses it up turns the event off until REFRESH. */
static void limits(const Part &part)
{
	Scene scene(part, breakpoint(hit));
	Random random(~part.seed);
	uint64_t left = 0, hups = 0;

	do {
		for (uint64_t i = 0; i < BATCH; i++) {
			if (!left) {
				/* The event is off: this hit has no effect. */
				hit(++scene.value);
				left = 1 + random.below(20);
				scene.event.must_refresh(left);
			}
			scene.count_hit(++scene.value);
			hit(scene.value);
			if (scene.accept(scene.value) && !--left)
				hups++;
			if (part.effects & SIGNALS && !machine.merges_signals &&
			    count_hups() != hups)
				error("expected %lu POLL_HUPs, got %lu: right after hit %lu", hups,
				      count_hups(), scene.tried);
		}
		scene.finish_batch(false);
	} while (!over());
	if (machine.merges_signals)
		expect_at_most("POLL_HUPs", part.effects & SIGNALS ? hups : 0, count_hups());
	else
		expect("POLL_HUPs", part.effects & SIGNALS ? hups : 0, count_hups());
	scene.close();
}

/*
 * An event with a limit that hits use up while a thread on another CPU raises it. Once REFRESH has
 * returned 0, each accepted hit must be delivered until the new limit is used up, even if the hit
 * that used up the old one has not disabled the event yet. No hit may be delivered above the limit.
 */
static void refreshes(const Part &part)
{
	Scene scene(part, breakpoint(hit));
	/* The sum of all limits, before REFRESH is called and after it has returned. */
	std::atomic<uint64_t> requested = 0, granted = 0;
	std::atomic<bool> stop = false;
	uint64_t refreshed = 0;

	const auto refresh = [&](uint64_t more) {
		requested += more;
		scene.event.must_refresh(more);
		granted = requested.load();
		refreshed++;
	};

	/* Returns whether the event was enabled. If it was not, the hit has had no effect. */
	const auto hit_once = [&] {
		const uint64_t due = granted, runs = scene.first.runs();

		/*
		 * On PREEMPT_RT before 6.11 the thread that enables the event again may have to
		 * wait for the lock of the signals.
		 */
		for (int tries = machine.merges_signals ? 1000 : 1;; usleep(1000)) {
			hit(++scene.value);
			if (scene.first.runs() != runs)
				break;
			if (scene.accepted >= due)
				return false;
			if (!--tries) {
				error("expected %lu accepted hits until the limit is used up, "
				      "got %lu",
				      due, scene.accepted);
				slot->counts.lost++;
				scene.event.enable();
				return false;
			}
		}
		scene.count_hit(scene.value);
		if (scene.accepted > requested)
			error("expected at most %lu accepted hits with this limit, got %lu",
			      requested.load(), scene.accepted);
		scene.compare_signals();
		return true;
	};

	refresh(1);

	std::thread raises([&] {
		Random random(~part.seed);

		prefer_cpu(0, -1); /* the actor's CPU may be fixed */
		while (!stop) {
			const uint64_t reserve = random.one_in(4) ? random.below(8) : 0;

			/* The program runs before its hit is charged to the limit. */
			for (int i = 0; !stop && granted > scene.first.accepted() + reserve; i++)
				if (i % 1000 == 999)
					sched_yield();
			if (random.one_in(2))
				pause_a_little(random);
			refresh(1 + random.below(random.one_in(4) ? 100 : 4));
		}
	});

	do {
		bool enabled = false;

		for (uint64_t i = 0; i < BATCH; i++)
			enabled |= hit_once();
		if (!enabled)
			sched_yield();
		scene.finish_batch(false);
	} while (!over());
	stop = true;
	raises.join();
	expect_at_most("POLL_HUPs", part.effects & SIGNALS ? refreshed : 0, count_hups());

	/* Use up the rest of the limit, and hit once more without effect. */
	refresh(1);
	scene.accept_all_from_now_on();

	const uint64_t hups = count_hups();

	while (scene.accepted < granted && hit_once())
		if (scene.tried % BATCH == 0)
			scene.finish_batch(false);
	expect("accepted hits, as many as REFRESH has granted", granted, scene.accepted);
	hit(++scene.value);
	if (!machine.merges_signals)
		expect("POLL_HUPs of the last limit", part.effects & SIGNALS ? 1 : 0,
		       count_hups() - hups);
	scene.close();
}

constexpr char GETPPID[] = SYSCALL_SYMBOL("getppid");

/* A program on a kprobe reads the watched word: a miss, as no program can run inside another. */
static void nested(const Part &part)
{
	Scene scene(part, breakpoint(Access::READ_WRITE, &word, 1));
	Decider reading("reads_watched");

	reading.globals()->reader = getpid();
	reading.globals()->watched = reinterpret_cast<uintptr_t>(&word);
	word = 0; /* Fault the page in: a program's read does not, and would fail. */
	scene.event.enable();
	{
		Kprobe kprobe(reading, GETPPID);

		if (!kprobe.attached())
			setup_failed("attaching to a kprobe", errno);
		do
			for (uint64_t i = 0; i < BATCH; i++)
				syscall(SYS_getppid);
		while (!over());
	}
	scene.tried = reading.globals()->reads;
	expect("runs of a program inside another", 0, scene.first.globals()->runs);
	scene.close();
}

/* A program is attached while its event is hit, and the event is closed while it is hit. */
static void closes(const Part &part)
{
	constexpr uint64_t EACH = 400;
	Signals caught({ SETSIG, SIGIO, SIGTRAP });
	Decider program(part.seed, 0, 0, false);
	Random random(~part.seed);
	Counts &counts = slot->counts;

	auto meanwhile = [&](auto act) {
		std::thread other([&] {
			pause_a_little(random);
			act();
		});

		hit_times(EACH);
		other.join();
	};

	do {
		const uint64_t signals = Signals::count(SETSIG), traps = Signals::count(SIGTRAP);
		Event event(with_sigtrap(breakpoint(hit), part.effects & TRAPS));
		std::optional<Ring> ring;

		if (part.effects & SAMPLES)
			ring.emplace(event);
		if (part.effects & SIGNALS)
			event.async(SETSIG, gettid());
		event.enable();
		meanwhile([&] { event.must_attach(program); });
		counts.hits += event.count();
		counts.accepted += EACH;
		expect("hits counted", EACH, event.count());
		if (ring) {
			ring->drain();
			expect("samples", EACH, ring->samples());
			counts.samples += ring->samples();
		}

		const uint64_t due = part.effects & SIGNALS ? EACH : 0;

		if (machine.merges_signals && due)
			for (int i = 0; i < 5000 && Signals::count(SETSIG) == signals; i++)
				usleep(1000);

		const uint64_t new_signals = Signals::count(SETSIG) - signals;
		const uint64_t new_traps = Signals::count(SIGTRAP) - traps;

		if (machine.merges_signals) {
			expect_at_most("signals", due, new_signals);
			expect_at_least("signals", due ? 1 : 0, new_signals);
		} else {
			expect("signals", due, new_signals);
		}
		expect("SIGTRAPs", part.effects & TRAPS ? EACH : 0, new_traps);
		counts.signals += new_signals;
		counts.traps += new_traps;

		/*
		 * The mapping would keep the event open. How many of the following calls hit is
		 * unknown.
		 */
		ring.reset();
		meanwhile([&] { event.close(); });

		const uint64_t all = Signals::count(SETSIG) + Signals::count(SIGTRAP);

		hit_times(EACH);
		expect("signals of a closed event", 0,
		       Signals::count(SETSIG) + Signals::count(SIGTRAP) - all);
	} while (!over());
	slot->closed = true;
}

static constexpr uint32_t ALL = SAMPLES | SIGNALS | TRAPS;

static const Actor all[] = {
	{ "calls", 10, ALL, calls, MEDDLED },
	{ "stores", 4, ALL, stores, MEDDLED },
	{ "syscalls", 4, ALL, syscalls, MEDDLED | IN_KERNEL | NEEDS_WATCHED_KERNEL },
	{ "overflows", 4, ALL, overflows, MEDDLED | IN_KERNEL | NEEDS_PMU },
	{ "threads", 2, SIGNALS | TRAPS, threads, MEDDLED | INHERITED },
	{ "forks", 2, SIGNALS | TRAPS, forks, MEDDLED | INHERITED },
	{ "execs", 1, SAMPLES, execs, ALL_EFFECTS },
	{ "limits", 2, ALL, limits },
	{ "refreshes", 2, ALL, refreshes },
	{ "nested", 1, ALL, nested, IN_KERNEL | NEEDS_MISSES | NEEDS_WATCHED_KERNEL },
	{ "closes", 1, ALL, closes, ACCEPTS_ALL },
};

std::span<const Actor> actors()
{
	return all;
}
