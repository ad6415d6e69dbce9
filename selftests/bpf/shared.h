/* SPDX-License-Identifier: GPL-2.0 */
/* The maps of shared.bpf.c, which a program shares with a task in bpf(2). */
#ifndef SHARED_H
#define SHARED_H

#define SHARED_KEYS 64 /* that the task updates and deletes; the next one is the program's */
#define SHARED_VALUE 16384 /* bytes: copying them takes its time */
#define SHARED_STORAGE 4096 /* of task storage newer kernels allocate no more than 8192 */
#define SHARED_FRAMES 8

struct shared_value {
	unsigned long long number;
	char rest[SHARED_VALUE - sizeof(unsigned long long)];
};

struct shared_storage {
	unsigned long long number;
	char rest[SHARED_STORAGE - sizeof(unsigned long long)];
};

#endif
