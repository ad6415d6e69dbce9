/* SPDX-License-Identifier: GPL-2.0 */
/* Shared by shared.bpf.c and user space: the maps that a program shares with a task in bpf(2). */
#ifndef SHARED_H
#define SHARED_H

#define SHARED_KEYS 64 /* keys of the task; the program uses the next one */
#define SHARED_VALUE 16384 /* bytes, so that copying takes some time */
#define SHARED_STORAGE 4096 /* newer kernels limit task storage to 8192 bytes */
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
