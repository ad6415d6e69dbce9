// SPDX-License-Identifier: GPL-2.0
/* Meddlings: what another thread does to the event of an actor while it is hit. */
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>

#include "stress/machine.h"
#include "stress/scene.h"

void pause_a_little(Random &random)
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

Meddler::Meddler(Scene &scene)
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

Meddler::~Meddler()
{
	stop_ = true;
	if (thread_.joinable())
		thread_.join();
}

static void set_flags(const Event &event, int flags)
{
	if (fcntl(event.fd(), F_SETFL, O_RDONLY | flags))
		setup_failed("F_SETFL", errno);
}

static const Meddling all[] = {
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
	  },
	  true },
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
	if (unpredictable & DETACHES)
		return machine.links;
	if (unpredictable & UNMAPS) /* no ring for an inherited event of a task */
		return effects & SAMPLES && !inherited;
	if (unpredictable & (SILENCES | MOVES_SIGNALS))
		return effects & SIGNALS;
	return true;
}

std::span<const Meddling> meddlings()
{
	return all;
}
