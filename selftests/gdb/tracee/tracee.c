// SPDX-License-Identifier: GPL-2.0
/*
 * The program that the tests gdb.* debug: perf_bpf_gdb_tracee WHAT N. Compiled with -O0 and -g, and
 * linked to the shared libc: gdb is to find everything where it does in a user's program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tracee.h"

#define THREADS 8

/* The operands of conditions. */
struct state {
	long sum;
	short level;
	unsigned char kind;
	struct state *next;
	char name[16];
};

static struct state last = { .kind = 200, .name = "last" };
static struct state first = { .next = &last, .name = "first" };
static volatile long total;
static volatile int stop_now, passed;
static double fraction;
static long *nowhere;

/* For conditions with locals, arguments, globals and pointers. */
static long work(long i, int id)
{
	struct state *state = &first;
	long twice = 2 * i;

	state->level = -i;
	state->next->sum = twice;
	fraction = i / 2.0;
	total += twice + id;
	return total;
}

/* For "until" and "finish": each statement has its own line. */
static long call_work(long i)
{
	long result = 0;

	result += work(i, 0);
	result += 1;
	result += 2;
	return result;
}

static void loop(long n, int id)
{
	for (long i = 0; i < n && !stop_now; i++)
		work(i, id);
}

static pthread_barrier_t ready, start, end;

/* A thread that is starting or ending blocks SIGTRAP, so none does while others work. */
static void *thread_main(void *id)
{
	const int is_one_of_many = *(long *)id % 100 < THREADS;

	if (is_one_of_many) {
		pthread_barrier_wait(&ready);
		pthread_barrier_wait(&start);
	}
	loop(*(long *)id / 100, *(long *)id % 100);
	if (is_one_of_many)
		pthread_barrier_wait(&end);
	return NULL;
}

/* All threads but the last are there, and have not begun. */
static void threads_wait(void)
{
	passed = THREADS;
}

/* THREADS at once, and one more that starts when they have ended. */
static void run_threads(long n)
{
	pthread_t threads[THREADS];
	long ids[THREADS + 1];

	pthread_barrier_init(&ready, NULL, THREADS + 1);
	pthread_barrier_init(&start, NULL, THREADS + 1);
	pthread_barrier_init(&end, NULL, THREADS);
	for (int i = 0; i <= THREADS; i++)
		ids[i] = n * 100 + i;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread_main, &ids[i]);
	pthread_barrier_wait(&ready);
	threads_wait();
	pthread_barrier_wait(&start);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_create(&threads[0], NULL, thread_main, &ids[THREADS]);
	pthread_join(threads[0], NULL);
}

static void run_fork(long n)
{
	int status = 0;
	const pid_t child = fork();

	if (!child) {
		loop(n, 1);
		_exit(33);
	}
	loop(n, 2);
	waitpid(child, &status, 0);
	printf("child: %s %d\n", WIFEXITED(status) ? "exit" : "signal",
	       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

/* system(3) is posix_spawn(3), whose child shares the memory of its parent until it executes. */
static void run_spawn(long n)
{
	for (long i = 0; i < n; i++) {
		work(i, 0);
		if (i % 100 == 50 && system("true"))
			exit(1);
	}
	printf("spawn: %ld\n", total);
}

static void run_library(long n)
{
	char path[PATH_MAX + 32], *end;
	const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);

	path[length > 0 ? length : 0] = 0;
	end = strrchr(path, '/');
	strcpy(end ? end + 1 : path, "perf_bpf_gdb_library.so");

	void *library = dlopen(path, RTLD_NOW);
	long (*function)(long) = library ? (long (*)(long))dlsym(library, "in_library") : NULL;

	if (!function) {
		printf("library: %s\n", dlerror());
		exit(1);
	}
	for (long i = 0; i < n; i++)
		total += function(i);
}

/* Operands for random expressions, of each width; another value in each round. */
struct operands {
	int8_t s8;
	uint8_t u8;
	int16_t s16;
	uint16_t u16;
	int32_t s32;
	uint32_t u32;
	int64_t s64;
	uint64_t u64;
	int32_t array[4];
};

static struct operands operands;
static volatile int stage;

static void first_stage(struct operands *o)
{
	passed = o->s8;
}

static void second_stage(struct operands *o)
{
	passed = o->s8;
}

static void third_stage(struct operands *o)
{
	passed = o->s8;
}

static uint64_t next_random(void)
{
	static uint64_t state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	/* Small numbers and the ends of the ranges as often as others. */
	switch (state >> 61) {
	case 0:
		return state & 3;
	case 1:
		return -(state & 3);
	case 2:
		return 1ull << (state & 63);
	case 3:
		return (1ull << (state & 63)) - 1;
	default:
		return state;
	}
}

static void run_rounds(long n)
{
	for (long i = 0; i < n && !stop_now; i++) {
		operands.s8 = next_random();
		operands.u8 = next_random();
		operands.s16 = next_random();
		operands.u16 = next_random();
		operands.s32 = next_random();
		operands.u32 = next_random();
		operands.s64 = next_random();
		operands.u64 = next_random();
		for (int k = 0; k < 4; k++)
			operands.array[k] = next_random();
		stage = 1;
		first_stage(&operands);
		stage = 2;
		second_stage(&operands);
		stage = 3;
		third_stage(&operands);
	}
}

static void *loop_in_second_stage(void *n)
{
	while (stage < 2)
		usleep(1000);
	loop(*(long *)n, 0);
	usleep(300 * 1000); /* It can be seen that a signal is pending. */
	return NULL;
}

/* In a thread that blocks all signals, and whose name looks like a line of /proc/PID/status. */
static void run_blocked(long n)
{
	pthread_t thread;
	sigset_t all, before;

	prctl(PR_SET_NAME, "SigBlk: none");
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	if (pthread_create(&thread, NULL, loop_in_second_stage, &n))
		return;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	first_stage(&operands);
	stage = 2;
	pthread_join(thread, NULL);
}

/* A stop is a voluntary switch. */
static long switches(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_nvcsw;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	const long n = argc > 2 ? atol(argv[2]) : 0;
	long before;

	setvbuf(stdout, NULL, _IONBF, 0);
	alarm(600);
	puts("main begins");
	before = switches(); /* loading the program may wait for a disk */
	if (!strcmp(what, "loop"))
		loop(n, 0);
	else if (!strcmp(what, "calls"))
		for (long i = 0; i < n; i++)
			call_work(i);
	else if (!strcmp(what, "registers"))
		for (long i = 0; i < n; i++)
			total += in_registers(i, total);
	else if (!strcmp(what, "threads"))
		run_threads(n);
	else if (!strcmp(what, "fork"))
		run_fork(n);
	else if (!strcmp(what, "exec"))
		execl("/proc/self/exe", argv[0], "loop", argv[2], NULL);
	else if (!strcmp(what, "spawn"))
		run_spawn(n);
	else if (!strcmp(what, "library"))
		run_library(n);
	else if (!strcmp(what, "rounds"))
		run_rounds(n);
	else if (!strcmp(what, "blocked"))
		run_blocked(n);
	else
		return 2;
	if (nowhere)
		return 3;
	printf("total %ld switches %ld\n", total, switches() - before);
	return 0;
}
