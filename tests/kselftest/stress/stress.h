/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stress program: processes of several threads do at random everything that
 * applications do to registered GPU memory, and some of it at the same time.
 *
 *   stress.c  the processes: started, killed, watched
 *   worker.c  one process: its threads, and what they do
 *
 * All that happens follows from the seed, as far as it does not depend on who
 * comes first.
 */
#ifndef STRESS_H
#define STRESS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_PROCESSES 8
#define MAX_THREADS 8

enum op {
	OP_ALLOC,
	OP_FREE,
	OP_REPLACE,		/* new memory mapped over old */
	OP_FREE_REGISTERED,
	OP_REGISTER,
	OP_DEREGISTER,
	OP_TRANSFER,
	OP_CHECK,
	OP_OLD_KEY,		/* access with the key of memory that was freed */
	OP_HOST_MEMORY,
	OP_NOT_OURS,
	OP_RACE_REGISTER,	/* memory that another thread may free meanwhile */
	OP_RACE_FREE,
	OP_FORK,
	OP_EXIT,
	OP_KILL,
	NR_OPS
};

extern const char * const op_names[NR_OPS];

struct options {
	uint64_t seed;
	uint64_t operations;	/* 0: no limit */
	unsigned int seconds;	/* 0: no limit */
	unsigned int processes;
	unsigned int threads;
	unsigned int hang_seconds;
	bool callback;		/* freed memory leaves its registrations */
	bool faults;		/* registrations may fail, somebody sees to that */
	bool fail_slab;		/* allocations in them fail, as /sys/kernel/debug/failslab says */
};

extern struct options options;

/* What a thread is at, for the watchdog. */
struct beat {
	_Atomic uint64_t since;	/* in seconds; 0: not at work */
	_Atomic int op;
	_Atomic int pid;
};

/* Shared by all processes. */
struct shared {
	_Atomic uint64_t done[NR_OPS];
	_Atomic uint64_t raced;		/* registrations that lost the race */
	_Atomic uint64_t failed;	/* and those that failed by injected faults */
	_Atomic uint64_t no_room;
	_Atomic uint64_t total;
	_Atomic int stop;
	_Atomic int wrong;
	struct beat beats[MAX_PROCESSES][MAX_THREADS];
};

extern struct shared *shared;
/* This process: what its threads find wrong now is only that it ends. */
extern _Atomic bool ending;

uint64_t seconds_now(void);
void count(enum op op);
/* Says what is wrong, and ends the whole run. */
__attribute__((format(printf, 1, 2))) void wrong(const char *format, ...);

/* xorshift64*: small, and the same everywhere */
struct random {
	uint64_t state;
};

static inline uint64_t random_next(struct random *random)
{
	random->state ^= random->state >> 12;
	random->state ^= random->state << 25;
	random->state ^= random->state >> 27;
	return random->state * 2685821657736338717ULL;
}

static inline uint64_t below(struct random *random, uint64_t limit)
{
	return (random_next(random) >> 11) % limit;
}

static inline bool one_in(struct random *random, unsigned int n)
{
	return !below(random, n);
}

/* A generator of its own for each (process, generation, thread). */
static inline struct random random_for(uint64_t a, uint64_t b, uint64_t c)
{
	struct random random = {
		(options.seed + 1) * 0x9e3779b97f4a7c15ULL ^ (a + 1) * 0xbf58476d1ce4e5b9ULL ^
		(b + 1) * 0x94d049bb133111ebULL ^ (c + 1) * 0xd6e8feb86659fd93ULL
	};

	random.state |= 1;
	for (int i = 0; i < 8; i++)
		random_next(&random);
	return random;
}

/* Does not return. */
void worker(unsigned int process, unsigned int generation);

#endif
