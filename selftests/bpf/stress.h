/* SPDX-License-Identifier: GPL-2.0 */
/* What stress.bpf.c and perf_bpf_stress must agree on. */
#ifndef STRESS_H
#define STRESS_H

/*
 * The rule by which a hit is accepted: a hash of the round's seed and of the value that the hit
 * brings along, so that whoever hits can tell beforehand. @mask 0 accepts all, 7 one in 8.
 */
static inline int accepts(unsigned long long seed, unsigned long long value,
			  unsigned long long mask)
{
	unsigned long long hash = (value ^ seed) * 0x9e3779b97f4a7c15ull;

	return !((hash >> 32) & mask);
}

#endif
