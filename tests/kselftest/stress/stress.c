// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stress.h"

enum { PASSED = 0, WRONG = 1, USAGE = 2, HUNG = 3 };

const char * const op_names[NR_OPS] = {
	[OP_ALLOC] = "alloc",
	[OP_FREE] = "free",
	[OP_REPLACE] = "replace",
	[OP_FREE_REGISTERED] = "free_registered",
	[OP_REGISTER] = "register",
	[OP_DEREGISTER] = "deregister",
	[OP_TRANSFER] = "transfer",
	[OP_CHECK] = "check",
	[OP_OLD_KEY] = "old_key",
	[OP_HOST_MEMORY] = "host_memory",
	[OP_NOT_OURS] = "not_ours",
	[OP_RACE_REGISTER] = "race_register",
	[OP_RACE_FREE] = "race_free",
	[OP_FORK] = "fork",
	[OP_EXIT] = "exit",
	[OP_KILL] = "kill",
};

struct options options = {
	.processes = 2,
	.threads = 3,
	.hang_seconds = 120,
};
struct shared *shared;
_Atomic bool ending;

static pid_t pids[MAX_PROCESSES];
static unsigned int generations[MAX_PROCESSES];

uint64_t seconds_now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

void count(enum op op)
{
	shared->done[op]++;
	if (++shared->total >= options.operations && options.operations)
		shared->stop = 1;
}

void wrong(const char *format, ...)
{
	va_list arguments;
	char text[256];

	while (ending)
		pause();
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (!shared->wrong++)
		fprintf(stderr, "WRONG: %s\n", text);
	shared->stop = 1;
	_exit(WRONG);
}

static void start(unsigned int process)
{
	unsigned int generation = generations[process]++;

	for (unsigned int i = 0; i < MAX_THREADS; i++)
		shared->beats[process][i].since = 0;
	pids[process] = fork();
	if (!pids[process])
		worker(process, generation);
	if (pids[process] < 0) {
		perror("fork");
		exit(WRONG);
	}
}

/* Has it ended? SIGSEGV and SIGKILL are among the ways that are meant. */
static bool reap(unsigned int process)
{
	int status;

	if (!pids[process] || waitpid(pids[process], &status, WNOHANG) != pids[process])
		return false;
	pids[process] = 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGSEGV && WTERMSIG(status) != SIGKILL) {
		fprintf(stderr, "WRONG: a process died of signal %d\n", WTERMSIG(status));
		shared->wrong++;
		shared->stop = 1;
	}
	return true;
}

/* The next process is killed after so many operations at most. */
#define KILL_WITHIN 1000

static void kill_one(struct random *random)
{
	unsigned int process = below(random, options.processes);

	if (!pids[process])
		return;
	kill(pids[process], SIGKILL);
	count(OP_KILL);
}

/* Names the threads that are at the same operation for too long. */
static bool hung(void)
{
	uint64_t now = seconds_now();
	bool found = false;

	for (unsigned int p = 0; p < options.processes; p++)
		for (unsigned int t = 0; t < options.threads; t++) {
			struct beat *beat = &shared->beats[p][t];

			if (!beat->since || now < beat->since + options.hang_seconds)
				continue;
			fprintf(stderr, "HUNG: thread %u.%u of process %d at %s for %lu s (seed %lu)\n",
				p, t, beat->pid, op_names[beat->op],
				(unsigned long)(now - beat->since), (unsigned long)options.seed);
			found = true;
		}
	return found;
}

static void run(void)
{
	uint64_t end = options.seconds ? seconds_now() + options.seconds : UINT64_MAX;
	struct random random = random_for(MAX_PROCESSES, 0, 0);
	uint64_t shown = seconds_now(), next_kill = below(&random, KILL_WITHIN);

	for (unsigned int i = 0; i < options.processes; i++)
		start(i);
	while (!shared->stop) {
		usleep(50000);
		if (seconds_now() >= end)
			shared->stop = 1;
		if (hung())
			exit(HUNG);
		if (seconds_now() >= shown + 60) {
			shown = seconds_now();
			printf("so far %lu operations\n", (unsigned long)shared->total);
			fflush(stdout);
		}
		if (shared->total >= next_kill) {
			kill_one(&random);
			next_kill = shared->total + below(&random, KILL_WITHIN);
		}
		for (unsigned int i = 0; i < options.processes; i++)
			if (reap(i) && !shared->stop)
				start(i);
	}
}

/* All of them end when they have seen stop. */
static void finish(void)
{
	uint64_t end = seconds_now() + options.hang_seconds;
	unsigned int i = 0;

	while (i < options.processes) {
		if (!pids[i] || reap(i)) {
			i++;
			continue;
		}
		if (seconds_now() >= end) {
			fprintf(stderr, "HUNG: process %d does not end (seed %lu)\n", pids[i],
				(unsigned long)options.seed);
			exit(HUNG);
		}
		usleep(10000);
	}
}

static void report(uint64_t seconds)
{
	printf("seed %lu: %lu operations in %lu s\n", (unsigned long)options.seed,
	       (unsigned long)shared->total, (unsigned long)seconds);
	for (unsigned int i = 0; i < NR_OPS; i++)
		printf("%s %lu\n", op_names[i], (unsigned long)shared->done[i]);
	printf("lost_race %lu\nfailed_by_fault %lu\nno_room %lu\n", (unsigned long)shared->raced,
	       (unsigned long)shared->failed, (unsigned long)shared->no_room);
}

static void usage(void)
{
	fputs("usage: stress [--seed N] [--operations N] [--seconds N] [--processes N] [--threads N]\n"
	      "              [--hang-seconds N] [--callback] [--faults] [--fail-slab]\n", stderr);
	exit(USAGE);
}

static void parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "operations", required_argument, NULL, 'o' },
		{ "seconds", required_argument, NULL, 't' },
		{ "processes", required_argument, NULL, 'p' },
		{ "threads", required_argument, NULL, 'n' },
		{ "hang-seconds", required_argument, NULL, 'h' },
		{ "callback", no_argument, NULL, 'c' },
		{ "faults", no_argument, NULL, 'f' },
		{ "fail-slab", no_argument, NULL, 'm' },
		{ 0 }
	};
	int name;

	options.seed = time(NULL) ^ getpid();
	while ((name = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (name) {
		case 's': options.seed = strtoull(optarg, NULL, 0); break;
		case 'o': options.operations = strtoull(optarg, NULL, 0); break;
		case 't': options.seconds = atoi(optarg); break;
		case 'p': options.processes = atoi(optarg); break;
		case 'n': options.threads = atoi(optarg); break;
		case 'h': options.hang_seconds = atoi(optarg); break;
		case 'c': options.callback = true; break;
		case 'f': options.faults = true; break;
		case 'm': options.fail_slab = true; break;
		default: usage();
		}
	}
	if (options.processes < 1 || options.processes > MAX_PROCESSES || options.threads < 1 ||
	    options.threads > MAX_THREADS || !(options.operations || options.seconds))
		usage();
}

int main(int argc, char **argv)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY }, no_core = { 0, 0 };
	uint64_t began = seconds_now();

	parse(argc, argv);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return WRONG;
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("seed %lu\n", (unsigned long)options.seed);
	setrlimit(RLIMIT_MEMLOCK, &limit);
	setrlimit(RLIMIT_CORE, &no_core);
	run();
	finish();
	report(seconds_now() - began);
	return shared->wrong ? WRONG : PASSED;
}
