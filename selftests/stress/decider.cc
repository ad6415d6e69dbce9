// SPDX-License-Identifier: GPL-2.0
#include "stress/decider.h"

#include <cstring>

#include "stress/machine.h"

Decider::Decider(uint64_t seed, uint64_t mask, uint64_t cookie, bool from_memory)
	: Decider("decides")
{
	globals()->seed = seed;
	globals()->mask = mask;
	globals()->cookie = cookie;
	globals()->from_memory = from_memory;
}

Decider::Decider(const char *name)
	: loaded_(name, [name](stress &skel) {
		skel.rodata->knows_cookies = machine.cookies;
		bpf_map__set_autocreate(skel.maps.steps, !strcmp(name, "steps_in"));
	})
{
}
