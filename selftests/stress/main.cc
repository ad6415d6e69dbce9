// SPDX-License-Identifier: GPL-2.0
/*
 * Hits of filtered breakpoints under everything that may happen beside them, with an oracle.
 *
 * The program accepts a hit by a hash of the value that the hit brings along, so whoever hits
 * knows beforehand what must be delivered. A round is some actors, each a process that hits and
 * then closes its books, perhaps with a thread that meddles with its event meanwhile, and some
 * noise, which is nobody's event. Who takes part is drawn by the round's seed from the tables
 * below. What the books must show, to the unit:
 *
 *	accepted = delivered, rejected = invisible, counted = all
 *
 * Not for a machine that is needed: without the series some of it takes a kernel down.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <optional>
#include <string>
#include <thread>

#include "lib/effects.h"
#include "lib/perf.h"
#include "lib/random.h"
#include "bpf/stress.h"

#include <stress.skel.h>

/* What one actor says in the end. */
struct Books {
	uint64_t hits, accepted, rejected,
		misses; /* all that were counted, and what became of them */
	uint64_t samples, signals, traps, hups; /* delivered */
	uint64_t lost, extra; /* of any of these: what came too few or too many */
};

/* What actors and noise have in common with main(). */
struct Slot {
	Books books;
	bool closed;
	std::atomic<uint64_t> from_children; /* SIGTRAPs of forked members of a family */
	pid_t pid;
	char difference[240]; /* the first */
};

constexpr int MOST = 16;

struct Shared {
	std::atomic<bool> stop; /* for all */
	std::atomic<bool> ended; /* all but the last */
	std::atomic<bool> probed; /* kprobes are there */
	int actors;
	Slot slots[MOST]; /* theirs, and then those of the noise */
};

static Shared *shared;
static Slot *slot; /* mine, in an actor or in noise */

static bool over()
{
	return shared->stop.load(std::memory_order_relaxed);
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;

	if (slot->difference[0])
		return;
	va_start(args, format);
	vsnprintf(slot->difference, sizeof(slot->difference), format, args);
	va_end(args);
}

[[noreturn]] static void give_up(const char *what, const char *why)
{
	if (slot)
		say("cannot go on: %s%s%s", what, *why ? ": " : "", why);
	else
		fprintf(stderr, "perf_bpf_stress: %s%s%s\n", what, *why ? ": " : "", why);
	_exit(2);
}

void setup_failed(const char *what, int err)
{
	give_up(what, strerrorname_np(err) ?: "unknown error");
}

void unavailable(const char *reason)
{
	give_up(reason, "");
}

/* The heart of it. */
static void expect(const char *what, uint64_t expected, uint64_t came)
{
	if (came == expected)
		return;
	slot->books.lost += came < expected ? expected - came : 0;
	slot->books.extra += came > expected ? came - expected : 0;
	say("%s: expected %lu, came %lu", what, expected, came);
}

/* As many, but not the same. */
static void expect_same(const char *what, uint64_t expected, uint64_t came)
{
	if (came != expected)
		say("%s do not add up: expected %#lx, came %#lx", what, expected, came);
}

static void expect_at_most(const char *what, uint64_t most, uint64_t came)
{
	expect(what, std::min(most, came), came);
}

static void expect_at_least(const char *what, uint64_t least, uint64_t came)
{
	expect(what, std::max(least, came), came);
}

/* What this kernel has; asked once. */
static struct {
	bool sigtrap, links, cookies, misses;
	/*
	 * On PREEMPT_RT a thread sends the signals of O_ASYNC. A task that goes on before it, as on
	 * another CPU, can hit again first, and the two share one.
	 */
	bool merges_signals;
	std::vector<int> cpus;
} machine;

constexpr uint64_t COOKIE = 0xc00c1e0000000001;

/* A loaded program of stress.bpf.c. */
class Decider {
public:
	Decider(uint64_t seed, uint64_t mask, uint64_t cookie, bool from_memory)
		: Decider([](stress *skel) { return skel->progs.decides; })
	{
		skel_->bss->seed = seed;
		skel_->bss->mask = mask;
		skel_->bss->cookie = cookie;
		skel_->bss->from_memory = from_memory;
	}
	explicit Decider(bpf_program *(*which)(stress *skel))
	{
		libbpf_set_print(nullptr);
		skel_ = stress__open();
		if (!skel_)
			setup_failed("bpf object", errno);
		skel_->rodata->knows_cookies = machine.cookies;

		bpf_program *all[] = { skel_->progs.decides, skel_->progs.steps_in,
				       skel_->progs.reads_watched };

		prog_ = which(skel_);
		for (bpf_program *prog : all)
			bpf_program__set_autoload(prog, prog == prog_);
		bpf_map__set_autocreate(skel_->maps.steps, prog_ == skel_->progs.steps_in);

		/* A signal would interrupt the verifier. */
		sigset_t most, before;

		sigfillset(&most);
		pthread_sigmask(SIG_SETMASK, &most, &before);
		if (int err = stress__load(skel_))
			setup_failed("bpf() to load the program", -err);
		pthread_sigmask(SIG_SETMASK, &before, nullptr);
	}
	~Decider()
	{
		stress__destroy(skel_);
	}
	Decider(const Decider &) = delete;

	int fd() const
	{
		return bpf_program__fd(prog_);
	}
	bpf_program *prog() const
	{
		return prog_;
	}
	stress::stress__bss *globals() const
	{
		return skel_->bss;
	}
	uint64_t accepted() const
	{
		return __atomic_load_n(&skel_->bss->accepted, __ATOMIC_RELAXED);
	}

	void attach(const Event &event) const
	{
		if (ioctl(event.fd(), PERF_EVENT_IOC_SET_BPF, fd()))
			setup_failed("PERF_EVENT_IOC_SET_BPF", errno);
	}
	Fd link(const Event &event) const
	{
		LIBBPF_OPTS(bpf_link_create_opts, opts,
			    .perf_event = { .bpf_cookie = skel_->bss->cookie });
		int link = bpf_link_create(fd(), event.fd(), BPF_PERF_EVENT, &opts);

		if (link < 0)
			setup_failed("bpf_link_create", -link);
		return Fd(link);
	}

	/* 0 before 5.12, which does not count them. */
	uint64_t misses() const
	{
		return info().recursion_misses;
	}
	/* As the kernel counts them while somebody holds what bpf_enable_stats() returns. */
	uint64_t runs_in_info() const
	{
		return info().run_cnt;
	}

private:
	bpf_prog_info info() const
	{
		bpf_prog_info info = {};
		uint32_t size = sizeof(info);

		if (bpf_obj_get_info_by_fd(fd(), &info, &size))
			setup_failed("bpf() to ask about the program", errno);
		return info;
	}

	stress *skel_;
	bpf_program *prog_;
};

/* What an accepted hit does. */
enum : uint32_t { SAMPLES = 1, SIGNALS = 2, TRAPS = 4 };

/* What a meddler takes from the books, which then know less. */
enum : uint32_t {
	DETACHES = 1, /* a hit may find no program: only with all accepted is it known */
	MISSES_HITS = 2, /* the event is off at times: what the program says counts */
	UNMAPS = 4, /* there is no ring at times */
	SILENCES = 8, /* there is no O_ASYNC at times */
	MOVES_SIGNALS = 16, /* they go to another thread, and come when they come */
	MERGES_SIGNALS = 32, /* not by a meddler: machine.merges_signals */
};

class Scene;

struct Meddling {
	const char *name;
	uint32_t takes;
	bool possible_if(uint32_t effects, bool inherited) const;
	void (*act)(Scene &scene, uint64_t round);
};

struct Actor;

/* What one actor is to do; all of it follows from the round's seed. */
struct Part {
	const Actor *actor;
	const Meddling *meddling; /* or nullptr */
	uint32_t effects;
	uint64_t mask, seed;
	int cpu; /* or -1 */
	bool wakes; /* attr.wakeup_events */
	bool blocks; /* the signals, in every other batch */
	bool fills; /* lets the ring overflow */
	bool by_link;
	bool stats; /* bpf_enable_stats() */
};

enum class Mode { USER, KERNEL };

struct Actor {
	const char *name;
	unsigned weight;
	uint32_t effects; /* that it can keep books of */
	bool meddled; /* others may */
	Mode mode;
	bool inherited;
	void (*play)(const Part &part);
};

/* That the watchpoints watch; alone on its page, as QEMU looks closely at all of that. */
static struct alignas(4096) {
	volatile uint64_t word;
} page;
static volatile uint64_t &word = page.word;

#ifdef __clang__
#define KEPT_APART __attribute__((noinline))
#else
#define KEPT_APART __attribute__((noipa))
#endif

/* The value is still in the first argument register when the watchpoint has hit. */
KEPT_APART static void store(uint64_t value, volatile uint64_t *to)
{
	asm volatile("" : : "r"(value));
	*to = value;
}

#ifdef __x86_64__
constexpr uint64_t FIRST_ARGUMENT = 1 << 5; /* of attr.sample_regs_user: PERF_REG_X86_DI */
#else
constexpr uint64_t FIRST_ARGUMENT = 1; /* PERF_REG_ARM64_X0 */
#endif

constexpr uint64_t BATCH = 1000; /* accepted ones fit into a ring, and into the queue of signals */

/* Whose samples have one word beside the header, which says what hit it was. */
static perf_event_attr saying_value(perf_event_attr attr)
{
	attr.sample_type = PERF_SAMPLE_REGS_USER;
	attr.sample_regs_user = FIRST_ARGUMENT;
	return attr;
}

/* An event with its program and all that hangs on it, and the books of its hits. */
class Scene {
public:
	Scene(const Part &part, perf_event_attr attr)
		: part(part)
		, takes((part.meddling ? part.meddling->takes : 0) |
			(machine.merges_signals ? uint32_t{ MERGES_SIGNALS } : 0))
		, kernel(part.actor->mode == Mode::KERNEL)
		, attr(complete(part, attr))
		, signals({ setsig_signal(), SIGIO, SIGTRAP })
		, event(this->attr)
		, first(part.seed, part.mask, by_link() ? COOKIE : 0, kernel)
		, second(part.seed, part.mask, COOKIE + 1, kernel)
	{
		if (part.effects & SAMPLES && !(takes & UNMAPS))
			ring.emplace(event);
		if (part.effects & SIGNALS)
			event.async(setsig_signal(), gettid());
		if (by_link())
			link = first.link(event);
		else
			first.attach(event);
		sigemptyset(&blocked);
		sigaddset(&blocked, setsig_signal());
		sigaddset(&blocked, SIGTRAP);
	}
	Scene(const Scene &) = delete;

	bool by_link() const
	{
		return part.by_link || takes & DETACHES;
	}
	bool accept(uint64_t value) const
	{
		return accepts(part.seed, value, first.globals()->mask);
	}
	void accept_all_from_now_on()
	{
		first.globals()->mask = 0;
	}

	/* A hit that somebody else will do, or has done. */
	void book(uint64_t value)
	{
		tried++;
		if (accept(value)) {
			accepted++;
			sum += value;
		}
	}
	/* Hits @times with all that follows by rights, each time before the next instruction. */
	template <typename Hit> void batch(Hit hit, uint64_t times)
	{
		const bool block = part.blocks && batches++ % 2;
		const bool at_once = !block && part.effects & (SIGNALS | TRAPS) &&
				     !(takes & (SILENCES | MOVES_SIGNALS)) &&
				     !(takes & DETACHES && kernel);

		if (block)
			sigprocmask(SIG_BLOCK, &blocked, nullptr);
		for (uint64_t i = 0; i < times; i++) {
			book(++value);
			if (kernel)
				__atomic_store_n(&first.globals()->value, value, __ATOMIC_RELAXED);
			hit(value);
			if (at_once)
				compare_signals();
		}
		if (block)
			sigprocmask(SIG_UNBLOCK, &blocked, nullptr);
		settle(block);
	}

	/* How many were accepted, as far as it can be told while they hit. */
	uint64_t due() const
	{
		return takes & MISSES_HITS || kernel ? first.accepted() : accepted;
	}
	uint64_t caught() const
	{
		return Signals::count(setsig_signal());
	}

	/* What of all this is on the way arrives before the next batch, so no queue overflows. */
	void settle(bool blocked)
	{
		if (part.blocks) {
			uint64_t now = due(), all = now - due_before;

			/* Blocked, a SIGTRAP is pending once, as every signal that is not queued. */
			traps_due += blocked ? std::min<uint64_t>(all, 1) : all;
			due_before = now;
		}
		if (part.effects & SIGNALS && !(takes & SILENCES))
			wait_for_signals();
		/* Nobody is woken for nothing, and whoever waits is woken. */
		if (ring && part.wakes && !part.fills && !(takes & DETACHES && kernel)) {
			const uint64_t now = due();

			if (ring->poll_ready() != (now > polled))
				say("poll(2) with %lu new samples: %s", now - polled,
				    now > polled ? "not ready" : "ready");
			polled = now;
		}
		if (!part.fills)
			drain();
	}
	/* Those that may come later than the hit. Where several are one, one must come for all. */
	void wait_for_signals()
	{
		const bool merged = takes & MERGES_SIGNALS;
		const uint64_t accepted_now = due();
		const uint64_t least =
			!merged ? accepted_now : caught_settled + (accepted_now > due_settled);

		if (merged || takes & MOVES_SIGNALS || part.actor->inherited)
			for (int i = 0; i < 5000 && caught() < least; i++)
				usleep(1000);
		if (merged)
			expect_at_least("signals", least, caught());
		due_settled = accepted_now;
		caught_settled = caught();
	}
	void drain()
	{
		if (!ring)
			return;
		ring->forget();
		ring->drain();
		samples += ring->samples();
		samples_sum += ring->sum();
		if (part.fills)
			samples += ring->lost();
		else
			expect("lost records", 0, ring->records(PERF_RECORD_LOST));
	}

	/* Compares; who meddles with it must have ended. */
	void close()
	{
		if (part.fills && ring) {
			/* Only the next sample brings the record of those that were lost. */
			drain();
			accept_all_from_now_on();
			book(++value);
			if (attr.bp_type == HW_BREAKPOINT_X)
				::hit(value);
			else
				store(value, &word);
			settle(false);
		}
		drain();
		event.disable();

		Books &books = slot->books;
		const uint64_t counted = event.count();
		const uint64_t misses = first.misses() + second.misses();
		const uint64_t runs = first.globals()->runs + second.globals()->runs;
		const uint64_t said = first.accepted() + second.accepted();
		const bool told = takes & MISSES_HITS || kernel; /* by the program alone */
		const uint64_t delivered = takes & DETACHES ? tried - misses
					   : told	    ? said
							    : accepted;

		if (takes & MISSES_HITS)
			expect_at_most("hits counted", tried, counted);
		else
			expect("hits counted", tried, counted);
		if (takes & DETACHES)
			expect_at_most("runs of the program", counted, runs + misses);
		else
			expect("runs and misses of the program", counted, runs + misses);
		if (!kernel)
			expect("misses of hits in user mode", 0, misses);
		if (part.stats)
			expect("runs in bpf_prog_info", runs,
			       first.runs_in_info() + second.runs_in_info());
		if (!(takes & DETACHES)) {
			if (told)
				expect_at_most("hits that the program accepted", accepted, said);
			else
				expect("hits that the program accepted", accepted, said);
			if (kernel && !(takes & MISSES_HITS) && said <= accepted)
				expect_at_most("hits accepted in vain", misses, accepted - said);
		}
		expect("runs that saw a wrong cookie", 0,
		       first.globals()->wrong_cookies + second.globals()->wrong_cookies);

		check(SAMPLES, UNMAPS, "samples", delivered, samples);
		if (ring && !part.fills && !kernel)
			expect_same("values of the samples",
				    takes & MISSES_HITS ? first.globals()->accepted_sum : sum,
				    samples_sum);
		check(SIGNALS, SILENCES | MERGES_SIGNALS, "signals", delivered, caught());
		expect("SIGIO, which is sent when the queue is full", 0, Signals::count(SIGIO));

		const uint64_t traps = Signals::count(SIGTRAP) + slot->from_children;

		check(TRAPS, 0, "SIGTRAPs", part.blocks ? traps_due : delivered, traps);

		books.hits = counted;
		books.accepted = delivered;
		books.misses = misses;
		books.rejected = counted > delivered + misses ? counted - delivered - misses : 0;
		books.samples = samples;
		books.signals = caught();
		books.hups = Signals::count(setsig_signal(), POLL_HUP);
		books.traps = traps;
		slot->closed = true;
	}

	const Part part;
	const uint32_t takes;
	const bool kernel;
	const perf_event_attr attr;
	Signals signals;
	Event event;
	Decider first, second; /* two, for the meddler who changes them */
	std::optional<Ring> ring;
	Fd link;
	uint64_t value = 0, tried = 0, accepted = 0, sum = 0;
	std::atomic<uint64_t> samples = 0;
	pid_t hitter = gettid();

private:
	static perf_event_attr complete(const Part &part, perf_event_attr attr)
	{
		const bool kernel = part.actor->mode == Mode::KERNEL;

		if (kernel)
			attr.exclude_kernel = 0;
		else
			attr = saying_value(attr);
		attr.wakeup_events = part.wakes;
		attr.inherit = part.actor->inherited;
		attr.sigtrap = attr.remove_on_exec = part.effects & TRAPS ? 1 : 0;
		return attr;
	}
	void compare_signals()
	{
		if (part.effects & SIGNALS && !(takes & MERGES_SIGNALS) && caught() != due())
			say("signals right after hit %lu: expected %lu, came %lu", tried, due(),
			    caught());

		/* Blocked before, some of them were never sent. */
		const uint64_t traps = part.blocks ? traps_due + due() - due_before : due();

		if (part.effects & TRAPS && Signals::count(SIGTRAP) != traps)
			say("SIGTRAPs right after hit %lu: expected %lu, came %lu", tried, traps,
			    Signals::count(SIGTRAP));
	}
	void check(uint32_t effect, uint32_t unless, const char *what, uint64_t due, uint64_t came)
	{
		if (!(part.effects & effect))
			expect(what, 0, came);
		else if (takes & unless)
			expect_at_most(what, due, came);
		else
			expect(what, due, came);
	}

	sigset_t blocked;
	uint64_t batches = 0, samples_sum = 0, traps_due = 0, due_before = 0, polled = 0;
	uint64_t due_settled = 0, caught_settled = 0;
};

/* Pauses that differ, so that what is raced is met at each of its steps. */
static void pause_a_little(Random &random)
{
	switch (random.below(4)) {
	case 0:
		sched_yield();
		break;
	case 1:
		usleep(random.below(300));
		break;
	default:
		for (uint64_t i = random.below(3000); i; i--)
			asm volatile("");
	}
}

/* Does what the part says to the event, in a thread of its own, until it is destroyed. */
class Meddler {
public:
	explicit Meddler(Scene &scene)
	{
		if (!scene.part.meddling)
			return;
		thread_ = std::thread([this, &scene] {
			Random random(~scene.part.seed);
			const bool hasty = random.one_in(2);

			for (uint64_t round = 0; !stop_; round++) {
				scene.part.meddling->act(scene, round);
				if (!hasty)
					pause_a_little(random);
			}
		});
	}
	~Meddler()
	{
		stop_ = true;
		if (thread_.joinable())
			thread_.join();
	}

private:
	std::atomic<bool> stop_ = false;
	std::thread thread_;
};

static void set_flags(const Event &event, int flags)
{
	if (fcntl(event.fd(), F_SETFL, O_RDONLY | flags))
		setup_failed("F_SETFL", errno);
}

static const Meddling meddlings[] = {
	{ "links", DETACHES,
	  [](Scene &scene, uint64_t round) {
		  scene.link.close();
		  scene.link = (round % 2 ? scene.first : scene.second).link(scene.event);
	  } },
	{ "enables", 0, [](Scene &scene, uint64_t) { scene.event.enable(); } },
	{ "switches", MISSES_HITS,
	  [](Scene &scene, uint64_t) {
		  scene.event.disable();
		  scene.event.enable();
	  } },
	{ "modifies", MISSES_HITS,
	  [](Scene &scene, uint64_t) {
		  perf_event_attr attr = scene.attr;

		  attr.disabled = 0;
		  scene.event.modify(attr);
	  } },
	{ "periods", 0, [](Scene &scene, uint64_t) { scene.event.set_period(1); } },
	{ "reads", 0,
	  [](Scene &scene, uint64_t) {
		  scene.event.count();
		  scene.event.id();
	  } },
	{ "maps", UNMAPS,
	  [](Scene &scene, uint64_t round) {
		  Ring ring(scene.event, Ring::Mode::NORMAL, 1 << round % 4);

		  usleep(200);
		  ring.drain();
		  scene.samples += ring.samples();
	  } },
	{ "async", SILENCES,
	  [](Scene &scene, uint64_t) {
		  set_flags(scene.event, O_NONBLOCK);
		  set_flags(scene.event, O_NONBLOCK | O_ASYNC);
	  } },
	{ "owners", MOVES_SIGNALS,
	  [](Scene &scene, uint64_t round) {
		  const pid_t owners[] = { scene.hitter, gettid() };
		  struct f_owner_ex ex = { F_OWNER_TID, owners[round % 2] };

		  if (round % 3 == 2)
			  ex = { F_OWNER_PID, getpid() };
		  if (fcntl(scene.event.fd(), F_SETOWN_EX, &ex))
			  setup_failed("F_SETOWN_EX", errno);
	  } },
};

bool Meddling::possible_if(uint32_t effects, bool inherited) const
{
	if (takes & DETACHES)
		return machine.links;
	if (takes & UNMAPS) /* no ring for an inherited event of a task */
		return effects & SAMPLES && !inherited;
	if (takes & (SILENCES | MOVES_SIGNALS))
		return effects & SIGNALS;
	return true;
}

/* One task hits as fast as it can. */
template <typename Hit> static void hit_alone(const Part &part, perf_event_attr attr, Hit hit)
{
	Scene scene(part, attr);

	scene.event.enable();
	{
		Meddler meddler(scene);

		while (!over())
			scene.batch(hit, BATCH);
	}
	scene.close();
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

/* The kernel writes the word, in a system call: one byte, so that it is one hit. */
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

/* Members of a family hit at once, and all of them end. */
template <typename Members> static void hit_as_family(const Part &part, Members members)
{
	constexpr uint64_t EACH = 150;
	Scene scene(part, breakpoint(hit));

	scene.event.enable();
	{
		Meddler meddler(scene);

		while (!over()) {
			const uint64_t from = scene.value;

			for (uint64_t i = 0; i < 3 * EACH; i++)
				scene.book(++scene.value);
			members(from, EACH);
			scene.settle(false);
		}
	}
	scene.close();
}

static void hit_range(uint64_t from, uint64_t times)
{
	for (uint64_t i = 1; i <= times; i++)
		hit(from + i);
}

/* join() returns before the thread has given up its events; when its id is free, it has. */
static void wait_until_gone(pid_t tid)
{
	while (!syscall(SYS_tgkill, getpid(), tid, 0))
		sched_yield();
}

static void threads(const Part &part)
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

/* Descriptors are shared: with a copy of one a child would keep a link that its parent closes. */
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

/* The child has inherited the events when the fork fails, for its id is taken: mine. */
static void fork_in_vain()
{
	const pid_t taken = getpid();
	clone_args args = {};

	args.flags = CLONE_FILES | CLONE_VM | CLONE_FS;
	args.exit_signal = SIGCHLD;
	args.set_tid = reinterpret_cast<uintptr_t>(&taken);
	args.set_tid_size = 1;
	if (syscall(SYS_clone3, &args, sizeof(args)) >= 0 || errno != EEXIST)
		setup_failed("clone3", errno);
}

static void wait_for(pid_t child, const char *whom)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			setup_failed("waitpid", errno);
	if (status)
		say("%s ended with status %#x", whom, status);
}

static void forks(const Part &part)
{
	/* What a detach can meet is the fork itself. */
	const int in_vain = part.meddling && part.meddling->takes & DETACHES ? 100 : 10;

	hit_as_family(part, [in_vain](uint64_t from, uint64_t each) {
		const char *whom = "a member of the family";
		pid_t one = fork_to_hit(from, each);
		pid_t two = fork_to_hit(from + each, each);

		for (int i = 0; i < in_vain; i++)
			fork_in_vain();
		hit_range(from + 2 * each, each);
		wait_for(one, whom);
		wait_for(two, whom);
	});
}

/* What is left after an exec: the event, which finds its breakpoint again by MODIFY_ATTRIBUTES. */
struct Executed {
	uint64_t counted, samples, sum;
};

static constexpr uint64_t EXECUTED_HITS = 300;

/* perf_bpf_stress --hit EVENT RESULT FROM, in the new image. */
static int hit_after_exec(int event_fd, int result, uint64_t from)
{
	Event event{ Fd(event_fd) };
	perf_event_attr attr = saying_value(breakpoint(hit));
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

static void execs(const Part &drawn)
{
	Part part = drawn;

	part.wakes = true; /* as the new image believes: no more than the address may change */

	Scene scene(part, breakpoint(hit_other)); /* for its programs */
	uint64_t counted = 0, sum = 0;

	while (!over()) {
		int ends[2];

		if (pipe(ends))
			setup_failed("pipe", errno);
		{
			Child child([&] {
				Event event(scene.attr);
				/* A copy of each without FD_CLOEXEC. */
				std::string args[] = { std::to_string(dup(event.fd())),
						       std::to_string(dup(ends[1])),
						       std::to_string(scene.value) };

				scene.first.attach(event);
				execl("/proc/self/exe", "perf_bpf_stress", "--hit", args[0].c_str(),
				      args[1].c_str(), args[2].c_str(), nullptr);
				return 1;
			});

			if (child.wait())
				say("what was executed did not end well");
		}
		for (uint64_t i = 0; i < EXECUTED_HITS; i++)
			scene.book(++scene.value);

		Executed executed = {};

		::close(ends[1]);
		if (read(ends[0], &executed, sizeof(executed)) != sizeof(executed))
			say("what was executed said nothing");
		::close(ends[0]);
		counted += executed.counted;
		scene.samples += executed.samples;
		sum += executed.sum;
	}
	expect("hits counted", scene.tried, counted);
	expect("runs of the program", scene.tried, scene.first.globals()->runs);
	expect("misses of hits in user mode", 0, scene.first.misses());
	expect("hits that the program accepted", scene.accepted, scene.first.accepted());
	expect("samples", scene.accepted, scene.samples);
	expect_same("values of the samples", scene.sum, sum);
	slot->books = { .hits = scene.tried,
			.accepted = scene.accepted,
			.rejected = counted - scene.accepted,
			.misses = 0,
			.samples = scene.samples,
			.signals = 0,
			.traps = 0,
			.hups = 0,
			.lost = slot->books.lost,
			.extra = slot->books.extra };
	slot->closed = true;
}

static uint64_t count_hups()
{
	return Signals::count(setsig_signal(), POLL_HUP);
}

/* An event with a limit: each accepted hit takes one, the last one turns it off until REFRESH. */
static void limits(const Part &part)
{
	Scene scene(part, breakpoint(hit));
	Random random(~part.seed);
	uint64_t left = 0, hups = 0;

	while (!over()) {
		for (uint64_t i = 0; i < BATCH; i++) {
			if (!left) {
				/* Turned off: this one is nobody's. */
				hit(++scene.value);
				left = 1 + random.below(20);
				scene.event.must_refresh(left);
			}
			scene.book(++scene.value);
			hit(scene.value);
			if (scene.accept(scene.value) && !--left)
				hups++;
			if (part.effects & SIGNALS && !machine.merges_signals &&
			    count_hups() != hups)
				say("POLL_HUPs right after hit %lu: expected %lu, came %lu",
				    scene.tried, hups, count_hups());
		}
		scene.settle(false);
	}
	if (machine.merges_signals)
		expect_at_most("POLL_HUPs", part.effects & SIGNALS ? hups : 0, count_hups());
	else
		expect("POLL_HUPs", part.effects & SIGNALS ? hups : 0, count_hups());
	scene.close();
}

/* A limit that another thread raises while it is used up. */
static void refreshes(const Part &part)
{
	constexpr uint64_t LEAST = 2 * BATCH, LARGEST = 20 * BATCH; /* that is left */
	Scene scene(part, breakpoint(hit));
	std::atomic<uint64_t> granted = LEAST, taken = 0;
	std::atomic<bool> stop = false;

	scene.event.must_refresh(LEAST);

	std::thread raises([&] {
		Random random(~part.seed);

		while (!stop) {
			int more = 1 + random.below(100);

			if (granted - taken < LARGEST) {
				scene.event.must_refresh(more);
				granted += more;
			}
			pause_a_little(random);
		}
	});

	while (!over()) {
		if (granted - taken >= LEAST)
			scene.batch(hit, BATCH);
		else
			sched_yield();
		taken = scene.accepted;
	}
	stop = true;
	raises.join();
	/* The rest of it, and one more, which is nobody's. */
	scene.accept_all_from_now_on();
	while (scene.accepted < granted)
		scene.batch(hit, std::min(BATCH, granted - scene.accepted));
	hit(++scene.value);
	expect("POLL_HUPs", part.effects & SIGNALS ? 1 : 0, count_hups());
	scene.close();
}

#ifdef __x86_64__
constexpr char GETPPID[] = "__x64_sys_getppid";
#else
constexpr char GETPPID[] = "__arm64_sys_getppid";
#endif

class Kprobe {
public:
	Kprobe(const Decider &program, const char *function)
		: link_(bpf_program__attach_kprobe(program.prog(), false, function))
	{
	}
	~Kprobe()
	{
		bpf_link__destroy(link_);
	}
	Kprobe(const Kprobe &) = delete;
	bool attached() const
	{
		return link_;
	}

private:
	bpf_link *link_;
};

/* A program on a kprobe reads the watched word: no other can run then, and that is counted. */
static void nested(const Part &part)
{
	Scene scene(part, breakpoint(Access::READ_WRITE, &word, 1));
	Decider reading([](stress *skel) { return skel->progs.reads_watched; });

	reading.globals()->reader = getpid();
	reading.globals()->watched = reinterpret_cast<uintptr_t>(&word);
	scene.event.enable();
	{
		Kprobe kprobe(reading, GETPPID);

		if (!kprobe.attached())
			setup_failed("attaching to a kprobe", errno);
		while (!over())
			for (uint64_t i = 0; i < BATCH; i++)
				syscall(SYS_getppid);
	}
	scene.tried = reading.globals()->reads;
	expect("runs of a program inside another", 0, scene.first.globals()->runs);
	scene.close();
}

/* A program comes while its event is hit, and the event is closed while it is hit. */
static void closes(const Part &part)
{
	constexpr uint64_t HITS_EACH = 400;
	const int sig = setsig_signal();
	Signals caught({ sig, SIGIO, SIGTRAP });
	Decider program(part.seed, 0, 0, false);
	Random random(~part.seed);
	Books &books = slot->books;

	auto meanwhile = [&](auto act) {
		std::thread other([&] {
			pause_a_little(random);
			act();
		});

		hit_range(0, HITS_EACH);
		other.join();
	};

	while (!over()) {
		const uint64_t signals = Signals::count(sig), traps = Signals::count(SIGTRAP);
		perf_event_attr attr = breakpoint(hit);

		attr.sigtrap = attr.remove_on_exec = part.effects & TRAPS ? 1 : 0;

		Event event(attr);
		std::optional<Ring> ring;

		if (part.effects & SAMPLES)
			ring.emplace(event);
		if (part.effects & SIGNALS)
			event.async(sig, gettid());
		event.enable();
		meanwhile([&] { program.attach(event); });
		books.hits += event.count();
		books.accepted += HITS_EACH;
		expect("hits counted", HITS_EACH, event.count());
		if (ring) {
			ring->drain();
			expect("samples", HITS_EACH, ring->samples());
			books.samples += ring->samples();
		}

		const uint64_t due = part.effects & SIGNALS ? HITS_EACH : 0;

		if (machine.merges_signals && due)
			for (int i = 0; i < 5000 && Signals::count(sig) == signals; i++)
				usleep(1000);

		const uint64_t new_signals = Signals::count(sig) - signals;
		const uint64_t new_traps = Signals::count(SIGTRAP) - traps;

		if (machine.merges_signals) {
			expect_at_most("signals", due, new_signals);
			expect_at_least("signals", due ? 1 : 0, new_signals);
		} else {
			expect("signals", due, new_signals);
		}
		expect("SIGTRAPs", part.effects & TRAPS ? HITS_EACH : 0, new_traps);
		books.signals += new_signals;
		books.traps += new_traps;

		/* The ring would keep the event. How many of these hit it, nobody can tell. */
		ring.reset();
		meanwhile([&] { event.close(); });

		const uint64_t all = Signals::count(sig) + Signals::count(SIGTRAP);

		hit_range(0, HITS_EACH);
		expect("signals of an event that is closed", 0,
		       Signals::count(sig) + Signals::count(SIGTRAP) - all);
	}
	slot->closed = true;
}

static const Actor actors[] = {
	{ "calls", 10, SAMPLES | SIGNALS | TRAPS, true, Mode::USER, false, calls },
	{ "stores", 4, SAMPLES | SIGNALS | TRAPS, true, Mode::USER, false, stores },
	{ "syscalls", 4, SAMPLES | SIGNALS | TRAPS, true, Mode::KERNEL, false, syscalls },
	{ "threads", 2, SIGNALS | TRAPS, true, Mode::USER, true, threads },
	{ "forks", 2, SIGNALS | TRAPS, true, Mode::USER, true, forks },
	{ "execs", 1, SAMPLES, false, Mode::USER, false, execs },
	{ "limits", 2, SAMPLES | SIGNALS | TRAPS, false, Mode::USER, false, limits },
	{ "refreshes", 2, SAMPLES | SIGNALS | TRAPS, false, Mode::USER, false, refreshes },
	{ "nested", 1, SAMPLES | SIGNALS | TRAPS, false, Mode::KERNEL, false, nested },
	{ "closes", 1, SAMPLES | SIGNALS | TRAPS, false, Mode::USER, false, closes },
};

/* Only the calling thread, and if that CPU is gone, not at all. */
static void prefer_cpu(pid_t pid, int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (int each : machine.cpus)
		if (cpu < 0 || each == cpu)
			CPU_SET(each, &set);
	sched_setaffinity(pid, sizeof(set), &set);
}

/* Each runs @make over and over. */
struct Noise {
	const char *name;
	bool (*possible)();
	void (*make)(Random &random);
};

static pid_t some_actor(Random &random)
{
	return shared->slots[random.below(shared->actors)].pid;
}

static bool always()
{
	return true;
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
 * Before 5.13 a kernel steps over a probed instruction by a debug trap, which on the way from a
 * hit in kernel mode would come upon its own stack. attr.sigtrap is as old as the cure.
 */
static bool can_step()
{
	return machine.sigtrap;
}

/*
 * From before anybody goes there until nobody does: QEMU before 8.1 may translate an instruction
 * while the kernel patches it, and keep what is no longer there. A CPU that runs into an int3 of
 * the past dies of it, or is sent to address 0 if a kprobe by ftrace, which has no copy of the
 * instruction, is at that place.
 */
static void step_in(Random &random)
{
	static const char *const functions[] = { "perf_bp_event", "perf_swevent_set_period",
						 "perf_output_begin_forward", "send_sigio" };
	const Decider stepping([](stress *skel) { return skel->progs.steps_in; });
	/* Some are not there in some kernels, or inlined. */
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

static bool hotplug_allowed;

static bool can_unplug()
{
	return hotplug_allowed && machine.cpus.size() > 1 &&
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

static perf_event_attr every_500_us()
{
	perf_event_attr attr = {};

	attr.type = PERF_TYPE_SOFTWARE;
	attr.size = sizeof(attr);
	attr.config = PERF_COUNT_SW_CPU_CLOCK;
	attr.sample_period = 500'000;
	return attr;
}

static void interrupt(Random &random)
{
	std::vector<Fd> clocks;
	perf_event_attr attr = every_500_us();

	/* A CPU may be off just now. */
	for (int cpu : machine.cpus)
		clocks.emplace_back(
			syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
	usleep(random.below(100'000));
}

/* Events of others on the tasks that hit: their contexts change, and their breakpoint registers. */
static void be_neighbour(Random &random)
{
	perf_event_attr attr = breakpoint(hit_other);

	attr.disabled = 0;

	Fd other(syscall(SYS_perf_event_open, &attr, some_actor(random), -1, -1,
			 PERF_FLAG_FD_CLOEXEC));

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

/* The last one ends last: see step_in(). */
static const Noise noises[] = {
	{ "lookups", always, look_up },
	{ "hotplug", can_unplug, unplug },
	{ "forking", always, fork_and_exit },
	{ "clocks", always, interrupt },
	{ "neighbours", always, be_neighbour },
	{ "moves", always, move },
	{ "pokes", always, poke },
	{ "kprobes", can_step, step_in },
};

static bool possible(const Actor &actor)
{
	return actor.play != nested || machine.misses;
}

static const Actor &draw_actor(Random &random)
{
	unsigned all = 0;

	for (auto &actor : actors)
		all += possible(actor) ? actor.weight : 0;

	uint64_t n = random.below(all);

	for (auto &actor : actors) {
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
	/* Most hits are rejected: they are the fast ones. */
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

	const Meddling &meddling = meddlings[random.below(std::size(meddlings))];

	if (actor.meddled && random.one_in(2) &&
	    meddling.possible_if(part.effects, actor.inherited))
		part.meddling = &meddling;

	const uint32_t takes = part.meddling ? part.meddling->takes : 0;
	const bool alone = actor.meddled && !actor.inherited;

	if (takes & DETACHES)
		part.mask = 0;
	if (actor.play == execs)
		part.effects = SAMPLES;
	part.blocks = alone && random.one_in(4) && part.effects & (SIGNALS | TRAPS) &&
		      !(takes & DETACHES);
	part.fills = alone && random.one_in(8) && part.effects & SAMPLES && !part.meddling;
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
	else if (part.actor->play == closes || !part.mask)
		text += ", all accepted";
	else
		text += ", one in " + std::to_string(part.mask + 1);
	if (part.blocks)
		text += ", blocks";
	if (part.fills)
		text += ", ring full";
	if (part.meddling)
		text = text + ", " + part.meddling->name;
	return text;
}

/* Forks @body, with a slot of its own; whoever does not end by himself is ended. */
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

/* What is wrong with how it ended, or "". */
static std::string end(Slot &its)
{
	int status;

	while (waitpid(its.pid, &status, 0) < 0)
		if (errno != EINTR)
			setup_failed("waitpid", errno);
	if (its.difference[0])
		return its.difference;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGALRM ? "does not end" : strsignal(WTERMSIG(status));
	return status ? "ended with " + std::to_string(WEXITSTATUS(status)) : "";
}

static void add(Books &sum, const Books &books)
{
	static_assert(sizeof(books) % sizeof(uint64_t) == 0, "nothing but numbers");
	for (size_t i = 0; i < sizeof(books) / sizeof(uint64_t); i++)
		reinterpret_cast<uint64_t *>(&sum)[i] +=
			reinterpret_cast<const uint64_t *>(&books)[i];
}

static void print_books(const char *of, const Books &b)
{
	printf("# %s: hits %lu accepted %lu rejected %lu misses %lu samples %lu signals %lu "
	       "sigtraps %lu hups %lu lost %lu extra %lu\n",
	       of, b.hits, b.accepted, b.rejected, b.misses, b.samples, b.signals, b.traps, b.hups,
	       b.lost, b.extra);
}

/* Whoever reads the log of a splat sees what ran. */
static void mark(uint64_t seed)
{
	char text[80];
	int size = snprintf(text, sizeof(text), "perf_bpf_filter: test stress.%#lx\n", seed);
	Fd kmsg(open("/dev/kmsg", O_WRONLY | O_CLOEXEC));

	if (kmsg.valid() && write(kmsg.get(), text, size) < 0)
		return;
}

static double seconds_now()
{
	timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static bool play_round(uint64_t number, uint64_t seed, double seconds, Books &sum)
{
	Random random(seed);
	const bool stats = random.one_in(4);
	Fd stats_fd(stats ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1);
	Part parts[MOST];
	int playing = 1 + random.below(machine.cpus.size() + 1), n = playing;
	std::string what, wrong;
	const Noise *making[std::size(noises)];
	Books books = {};
	bool unplugs = false, probes = false;

	playing = n = std::min(n, MOST / 2);
	memset(static_cast<void *>(shared), 0, sizeof(*shared));
	shared->actors = playing;
	mark(seed);
	for (int i = 0; i < playing; i++) {
		parts[i] = draw(random, stats && stats_fd.valid());
		what += (i ? "; " : "") + describe(parts[i]);
	}
	for (auto &noise : noises) {
		/*
		 * Drawn even if it is not possible, so that the rest is the same everywhere. Clocks
		 * that starve a CPU which goes offline make the scheduler of 6.12 warn that it is
		 * not vacated, with the series and without.
		 */
		if (random.one_in(6) && noise.possible() && !(noise.make == interrupt && unplugs) &&
		    n < MOST) {
			unplugs |= noise.make == unplug;
			probes |= noise.make == step_in;
			what = what + (n == playing ? " | " : ", ") + noise.name;
			making[n++ - playing] = &noise;
		}
	}

	const unsigned patience = seconds + 60;

	auto begin_noise = [&](bool probing) {
		for (int i = playing; i < n; i++)
			if ((making[i - playing]->make == step_in) == probing)
				begin(shared->slots[i], patience,
				      [&random, noise = making[i - playing]] {
					      while (!over())
						      noise->make(random);
				      });
	};

	begin_noise(true);
	for (double end = seconds_now() + 10; probes && !shared->probed && seconds_now() < end;)
		usleep(1000);
	for (int i = 0; i < playing; i++)
		begin(shared->slots[i], patience, [&part = parts[i]] {
			if (part.cpu >= 0)
				prefer_cpu(0, part.cpu);
			part.actor->play(part);
		});
	begin_noise(false);
	usleep(seconds * 1e6);
	shared->stop = true;

	for (int i = 0; i < n; i++) {
		Slot &its = shared->slots[i];

		if (i == n - 1)
			shared->ended = true;

		std::string ended = end(its);

		if (ended.empty() && i < playing && !its.closed)
			ended = "did not close its books";
		if (!ended.empty())
			wrong = wrong + "# " +
				(i < playing ? describe(parts[i]) : making[i - playing]->name) +
				": " + ended + "\n";
		add(books, its.books);
	}
	printf("%s %lu %#lx %s\n", wrong.empty() ? "ok" : "not ok", number, seed, what.c_str());
	if (!wrong.empty())
		printf("%s# again: perf_bpf_stress --seed %#lx --rounds 1\n", wrong.c_str(), seed);
	print_books("round", books);
	fflush(stdout);
	add(sum, books);
	return wrong.empty();
}

static void look_at_machine()
{
	bpf_prog_info info = {};
	uint32_t size = sizeof(info);

	machine.cpus = usable_cpus();
	machine.sigtrap = has_sigtrap();

	utsname name;

	machine.merges_signals = !uname(&name) && strstr(name.version, "PREEMPT_RT");
	machine.cookies = libbpf_probe_bpf_helper(BPF_PROG_TYPE_PERF_EVENT,
						  BPF_FUNC_get_attach_cookie, nullptr) == 1;

	Decider program(0, 0, 0, false);

	/* With perf links the bad descriptor is what is wrong; without, the attach type. */
	machine.links = bpf_link_create(program.fd(), -1, BPF_PERF_EVENT, nullptr) != -EINVAL;
	machine.misses = !bpf_obj_get_info_by_fd(program.fd(), &info, &size) &&
			 size >= offsetof(bpf_prog_info, recursion_misses) + sizeof(uint64_t);
}

static const char usage[] =
	"usage: perf_bpf_stress [--seed N] [--seconds N] [--rounds N] [--hotplug]\n"
	"Hits filtered breakpoints under all that may happen beside them, and compares what must\n"
	"come with what comes, as KTAP. Without the series this can take the kernel down.\n"
	"  --seed N      of the first round; the same seed draws the same rounds (default: the "
	"time)\n"
	"  --seconds N   how long in all (default 10)\n"
	"  --rounds N    no more than that\n"
	"  --hotplug     may turn CPUs off and on\n"
	"  -h, --help    this text\n";

[[noreturn]] static void refuse(const char *argument)
{
	fprintf(stderr, "perf_bpf_stress: bad argument %s (try --help)\n", argument);
	exit(2);
}

static uint64_t number_of(const char *option, const char *text)
{
	char *end = nullptr;

	errno = 0;

	uint64_t number = text ? strtoull(text, &end, 0) : 0;

	if (!text || end == text || *end || errno || *text == '-')
		refuse(option);
	return number;
}

int main(int argc, char **argv)
{
	constexpr double ROUND_SECONDS = 2;
	uint64_t seed = time(nullptr), seconds = 10, rounds = UINT64_MAX, done = 0, failed = 0;

	if (argc == 5 && !strcmp(argv[1], "--hit"))
		return hit_after_exec(atoi(argv[2]), atoi(argv[3]), number_of("--hit", argv[4]));
	for (int i = 1; i < argc; i++) {
		std::string option = argv[i];

		if (option == "--hotplug") {
			hotplug_allowed = true;
		} else if (option == "-h" || option == "--help") {
			fputs(usage, stdout);
			return 0;
		} else if (option == "--seed" || option == "--seconds" || option == "--rounds") {
			uint64_t number = number_of(argv[i], i + 1 < argc ? argv[i + 1] : nullptr);

			(option == "--seed"	 ? seed
			 : option == "--seconds" ? seconds
						 : rounds) = number;
			i++;
		} else {
			refuse(argv[i]);
		}
	}

	void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const rlimit many = { 100'000, 100'000 };
	Books sum = {};

	if (memory == MAP_FAILED)
		setup_failed("mmap", errno);
	shared = static_cast<Shared *>(memory);
	/* Queued signals are charged to the user, whose are all of the actors. */
	setrlimit(RLIMIT_SIGPENDING, &many);
	signal(SIGUSR1, [](int) {});
	look_at_machine();

	/*
	 * The kernel patches its context switch as the first event comes and after the last has
	 * gone. For a QEMU as in step_in() that had better be seldom.
	 */
	const Event last(breakpoint(hit_other));

	printf("TAP version 13\n# seed %#lx, %zu CPUs\n", seed, machine.cpus.size());
	fflush(stdout);
	for (double begin = seconds_now(); done < rounds && seconds_now() - begin < seconds;) {
		failed += !play_round(++done, seed, ROUND_SECONDS, sum);
		seed = Random(seed).next();
	}
	printf("1..%lu\n", done);
	print_books("all", sum);
	printf("# %lu rounds, %lu failed\n", done, failed);
	return failed || !sum.hits ? 1 : 0;
}
