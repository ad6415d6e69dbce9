/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by stress.bpf.c and perf_bpf_stress. */
#ifndef STRESS_H
#define STRESS_H

/*
 * Whether a hit is accepted: by a hash of the round's seed and the hit's value, so that the task
 * that hits can predict it. A @mask of 0 accepts all hits, one of 7 accepts one in 8.
 */
static inline int accepts(unsigned long long seed, unsigned long long value,
			  unsigned long long mask)
{
	unsigned long long hash = (value ^ seed) * 0x9e3779b97f4a7c15ull;

	return !((hash >> 32) & mask);
}

#endif
