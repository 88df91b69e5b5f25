// SPDX-License-Identifier: GPL-2.0
/*
 * One process. Each thread has buffers of its own, about which it knows all: what
 * must succeed, and what must be in them. The victims are shared: anybody frees
 * them at any time, so of those only a few outcomes are certain to be wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gpu.h"
#include "nic.h"
#include "stress.h"

#define NR_GPUS 2
#define NR_BUFFERS 4
#define NR_VICTIMS 3
#define NR_OLD 6
#define MAX_LENGTH (8UL << 20)
/* A buffer, and after it addresses that are nobody's. */
#define SLOT (2 * MAX_LENGTH)
#define WINDOW 4096U
#define SCRATCH (2 * WINDOW)

/* What is known to be in memory: bytes made from a seed, in one place. */
struct content {
	unsigned long va;
	uint32_t length;	/* 0: nothing is known */
	uint64_t seed;
};

struct region {
	struct ibv_mr *mr;
	unsigned long va;
	size_t length;
	struct content content;	/* of a region whose memory was freed */
};

struct buffer {
	unsigned long va;
	size_t length;		/* 0: no memory */
	unsigned int gpu;
	struct region regions[2];
	struct content content;
};

struct victim {
	pthread_mutex_t lock;	/* of who allocates and frees; registering takes none */
	unsigned long va;
	size_t length;
	unsigned int gpu;
};

struct thread {
	unsigned int process, number;
	struct random random;
	struct beat *beat;
	struct loop *loop;
	int make_it_fail;
	struct buffer buffers[NR_BUFFERS];
	struct region old[NR_OLD];
	char *scratch;
	struct ibv_mr *scratch_mr;
};

static int gpus[NR_GPUS];
static struct nic *nic;
static struct victim victims[NR_VICTIMS];
static struct thread threads[MAX_THREADS];
/* Operations until the process ends. */
static _Atomic int life;

/* Registering and deregistering. */

static void allocations_fail(struct thread *t, const char *flag)
{
	if (t->make_it_fail >= 0 && pwrite(t->make_it_fail, flag, 1, 0) != 1)
		wrong("cannot write to make-it-fail: %s", strerror(errno));
}

static struct ibv_mr *try_register(struct thread *t, unsigned long va, size_t length)
{
	struct ibv_mr *mr;
	int error;

	allocations_fail(t, "1");
	mr = nic_register(nic, va, length);
	error = errno;
	allocations_fail(t, "0");
	errno = mr ? 0 : error;
	return mr;
}

static void deregister(struct ibv_mr *mr)
{
	int error = nic_deregister(mr);

	if (error)
		wrong("deregistration: %s", strerror(error));
}

/* Errors that only faults put on purpose can cause. */
static bool injected(int error)
{
	switch (error) {
	case ENOMEM:
		return options.faults || options.fail_slab;
	case EFAULT:	/* "not GPU memory", as a fault of the driver */
	case EBUSY:
	case EIO:
	case ENODEV:
	case EOPNOTSUPP:
		return options.faults;
	}
	return false;
}

/* Data. */

static void fill(char *to, uint32_t length, uint64_t seed)
{
	struct random random = { seed | 1 };

	for (uint32_t i = 0; i < length; i += 8) {
		uint64_t word = random_next(&random);

		memcpy(to + i, &word, length - i < 8 ? length - i : 8);
	}
}

static void expect_content(struct thread *t, const char *got, const struct content *content,
			   const char *where)
{
	char wanted[WINDOW];

	fill(wanted, content->length, content->seed);
	for (uint32_t i = 0; i < content->length; i++) {
		if (got[i] == wanted[i])
			continue;
		wrong("%s: byte %u of %u at %#lx is %#x instead of %#x (thread %u.%u)", where, i,
		      content->length, content->va, got[i] & 0xff, wanted[i] & 0xff, t->process, t->number);
		return;
	}
}

static void connect_again(struct thread *t)
{
	if (t->loop)
		loop_close(t->loop);
	t->loop = loop_open(nic);
	if (!t->loop)
		wrong("connection: %s", strerror(errno));
}

/* A connection does not survive an error. */
static int transferred(struct thread *t, int status)
{
	if (status == LOOP_NO_COMPLETION)
		wrong("no completion (thread %u.%u)", t->process, t->number);
	if (status != IBV_WC_SUCCESS)
		connect_again(t);
	return status;
}

static int write_to(struct thread *t, struct region *region, unsigned long va, uint32_t length)
{
	return transferred(t, loop_write(t->loop, (unsigned long)t->scratch, t->scratch_mr->lkey,
					 va, region->mr->rkey, length));
}

/* Into the second half of the scratch memory. */
static int read_from(struct thread *t, struct region *region, unsigned long va, uint32_t length)
{
	return transferred(t, loop_read(t->loop, (unsigned long)t->scratch + WINDOW,
					t->scratch_mr->lkey, va, region->mr->rkey, length));
}

static void pick_window(struct thread *t, const struct region *region, struct content *content)
{
	uint32_t length = 1 + below(&t->random, WINDOW);

	content->length = length < region->length ? length : region->length;
	content->va = region->va + below(&t->random, region->length - content->length + 1);
	content->seed = random_next(&t->random);
}

/* Random bytes to a random place of the region; content says which and where. */
static int write_window(struct thread *t, struct region *region, struct content *content)
{
	pick_window(t, region, content);
	fill(t->scratch, content->length, content->seed);
	return write_to(t, region, content->va, content->length);
}

static void check_by_reading(struct thread *t, struct region *region, const struct content *content,
			     const char *where)
{
	int status = read_from(t, region, content->va, content->length);

	if (status != IBV_WC_SUCCESS)
		wrong("%s: reading ended with status %d", where, status);
	else
		expect_content(t, t->scratch + WINDOW, content, where);
}

static bool covers(const struct region *region, const struct content *content)
{
	return region->mr && content->va >= region->va &&
	       content->va + content->length <= region->va + region->length;
}

/* What to take. */

static struct buffer *any_buffer(struct thread *t)
{
	return &t->buffers[below(&t->random, NR_BUFFERS)];
}

static struct region *live_region(struct thread *t, struct buffer *buffer)
{
	unsigned int first = below(&t->random, 2);

	for (unsigned int i = 0; i < 2; i++)
		if (buffer->regions[(first + i) % 2].mr)
			return &buffer->regions[(first + i) % 2];
	return NULL;
}

static size_t random_length(struct thread *t)
{
	size_t length = 1 + below(&t->random, one_in(&t->random, 64) ? MAX_LENGTH : 1UL << 20);

	return one_in(&t->random, 2) ? length : (length + GPU_PAGE - 1) & ~(GPU_PAGE - 1);
}

/* The whole, or a part of any alignment. */
static void random_part(struct thread *t, unsigned long *va, size_t *length)
{
	size_t offset;

	if (one_in(&t->random, 2))
		return;
	offset = below(&t->random, *length);
	*va += offset;
	*length = 1 + below(&t->random, *length - offset);
}

/* Allocating and freeing. */

static bool allocate(unsigned int gpu, unsigned long va, size_t length)
{
	if (!gpu_alloc(gpus[gpu], va, length))
		return true;
	if (errno != ENOMEM)
		wrong("mmap of GPU memory: %s", strerror(errno));
	shared->no_room++;
	if (gpu_reserve(va, SLOT))
		wrong("mmap: %s", strerror(errno));
	return false;
}

static void release_memory(struct thread *t, unsigned int gpu, unsigned long va)
{
	if (one_in(&t->random, 2) && gpu_free(gpus[gpu], va))
		wrong("free: %s", strerror(errno));
	if (gpu_reserve(va, SLOT))
		wrong("munmap: %s", strerror(errno));
}

static bool op_alloc(struct thread *t, struct buffer *buffer)
{
	if (buffer->length)
		return false;
	buffer->length = random_length(t);
	buffer->gpu = below(&t->random, NR_GPUS);
	buffer->content.length = 0;
	if (!allocate(buffer->gpu, buffer->va, buffer->length))
		buffer->length = 0;
	return true;
}

static void deregister_all(struct buffer *buffer)
{
	for (unsigned int i = 0; i < 2; i++) {
		if (buffer->regions[i].mr)
			deregister(buffer->regions[i].mr);
		buffer->regions[i].mr = NULL;
	}
}

static bool op_free(struct thread *t, struct buffer *buffer)
{
	if (!buffer->length)
		return false;
	deregister_all(buffer);
	release_memory(t, buffer->gpu, buffer->va);
	buffer->length = 0;
	return true;
}

/*
 * The buffer's regions have lost their memory, or keep it alone. One goes on as
 * an old one; two could write into each other's contents.
 */
static void make_old(struct thread *t, struct buffer *buffer)
{
	struct region *old = &t->old[below(&t->random, NR_OLD)];
	struct region *region = live_region(t, buffer);

	if (region) {
		if (old->mr)
			deregister(old->mr);
		*old = *region;
		old->content = buffer->content;
		if (!covers(old, &old->content))
			old->content.length = 0;
		region->mr = NULL;
	}
	deregister_all(buffer);
}

static bool op_free_registered(struct thread *t, struct buffer *buffer)
{
	if (!buffer->length || !live_region(t, buffer))
		return false;
	release_memory(t, buffer->gpu, buffer->va);
	buffer->length = 0;
	make_old(t, buffer);
	return true;
}

/* GPU memory is freed as a whole, so the new must cover the old. */
static bool op_replace(struct thread *t, struct buffer *buffer)
{
	size_t length = random_length(t);

	if (!buffer->length)
		return false;
	if (buffer->length < length)
		buffer->length = length;
	buffer->gpu = below(&t->random, NR_GPUS);
	if (!allocate(buffer->gpu, buffer->va, buffer->length))
		buffer->length = 0;
	make_old(t, buffer);
	buffer->content.length = 0;
	return true;
}

/* Registering. */

static bool op_register(struct thread *t, struct buffer *buffer)
{
	struct region *region = &buffer->regions[below(&t->random, 2)];

	if (!buffer->length || region->mr)
		return false;
	region->va = buffer->va;
	region->length = buffer->length;
	random_part(t, &region->va, &region->length);
	region->mr = try_register(t, region->va, region->length);
	if (!region->mr && injected(errno))
		shared->failed++;
	else if (!region->mr)
		wrong("registration of %#lx, %zu bytes: %s", region->va, region->length, strerror(errno));
	return true;
}

static bool op_deregister(struct thread *t, struct buffer *buffer)
{
	struct region *region = live_region(t, buffer);

	if (!region)
		return false;
	deregister(region->mr);
	region->mr = NULL;
	return true;
}

static bool op_host_memory(struct thread *t)
{
	size_t length = 1 + below(&t->random, 16 * WINDOW);
	char *memory = malloc(length);
	struct ibv_mr *mr = try_register(t, (unsigned long)memory, length);

	if (mr)
		deregister(mr);
	else if (!injected(errno))
		wrong("registration of host memory: %s", strerror(errno));
	free(memory);
	return true;
}

/* Addresses after a buffer, or across its end. */
static bool op_not_ours(struct thread *t, struct buffer *buffer)
{
	unsigned long va = buffer->va + MAX_LENGTH;
	size_t length = 1 + below(&t->random, MAX_LENGTH / 2);
	struct ibv_mr *mr;

	if (one_in(&t->random, 2)) {
		va = buffer->va;
		length += MAX_LENGTH;
	}
	mr = try_register(t, va, length);
	if (mr)
		wrong("registration of memory of nobody succeeded");
	else if (errno != EFAULT && !injected(errno))
		wrong("registration of memory of nobody: %s", strerror(errno));
	return true;
}

/* Transferring. */

static void copy(struct thread *t, struct buffer *from, struct region *source, struct buffer *to,
		 struct region *target)
{
	struct content *content = &from->content;
	unsigned long va = target->va + below(&t->random, target->length - content->length + 1);
	int status = transferred(t, loop_write(t->loop, content->va, source->mr->lkey, va,
					       target->mr->rkey, content->length));

	if (status != IBV_WC_SUCCESS) {
		wrong("GPU to GPU: status %d", status);
		return;
	}
	to->content = *content;
	to->content.va = va;
}

/* From the host, or what is in another buffer. */
static bool op_transfer(struct thread *t, struct buffer *to)
{
	struct region *target = live_region(t, to), *source;
	struct buffer *from = any_buffer(t);
	int status;

	if (!to->length || !target)
		return false;
	source = live_region(t, from);
	if (from != to && source && from->content.length && covers(source, &from->content) &&
	    target->length >= from->content.length) {
		copy(t, from, source, to, target);
		return true;
	}
	status = write_window(t, target, &to->content);
	if (status != IBV_WC_SUCCESS)
		wrong("writing: status %d", status);
	return true;
}

static bool op_check(struct thread *t, struct buffer *buffer)
{
	struct region *region = live_region(t, buffer);

	if (!buffer->length || !buffer->content.length)
		return false;
	if (region && covers(region, &buffer->content))
		check_by_reading(t, region, &buffer->content, "read by the NIC");
	else
		expect_content(t, (char *)buffer->content.va, &buffer->content, "read by the CPU");
	return true;
}

static void expect_error(int status, const char *what)
{
	if (status == IBV_WC_SUCCESS)
		wrong("%s with the key of freed memory succeeded", what);
}

/* Freed memory: nothing to reach any more, or all as before. */
static bool op_old_key(struct thread *t)
{
	struct region *old = &t->old[below(&t->random, NR_OLD)];
	struct content content;

	if (!old->mr)
		return false;
	if (options.callback) {
		pick_window(t, old, &content);
		fill(t->scratch, content.length, ~0UL);
		if (one_in(&t->random, 2))
			expect_error(write_to(t, old, content.va, content.length), "writing");
		else
			expect_error(read_from(t, old, content.va, content.length), "reading");
	} else if (old->content.length && one_in(&t->random, 2)) {
		check_by_reading(t, old, &old->content, "memory kept by a registration");
	} else if (write_window(t, old, &old->content) != IBV_WC_SUCCESS) {
		wrong("writing to memory kept by a registration failed");
	}
	return true;
}

/* Races. */

static void use_raced(struct thread *t, struct ibv_mr *mr, unsigned long va, size_t length)
{
	uint32_t some = length < WINDOW ? length : WINDOW;

	/* Its memory may be gone: any status will do. */
	if (one_in(&t->random, 8))
		transferred(t, loop_write(t->loop, (unsigned long)t->scratch, t->scratch_mr->lkey,
					  va, mr->rkey, some));
	if (one_in(&t->random, 4))
		usleep(below(&t->random, 300));
	deregister(mr);
}

static bool op_race_register(struct thread *t)
{
	struct victim *victim = &victims[below(&t->random, NR_VICTIMS)];
	unsigned long va = victim->va;
	size_t length = __atomic_load_n(&victim->length, __ATOMIC_RELAXED);
	struct ibv_mr *mr;

	if (!length)
		return false;
	random_part(t, &va, &length);
	mr = try_register(t, va, length);
	if (mr)
		use_raced(t, mr, va, length);
	else if (errno == EFAULT)
		shared->raced++;
	else if (!injected(errno))
		wrong("registration of memory that may be freed: %s", strerror(errno));
	else
		shared->failed++;
	return true;
}

static bool op_race_free(struct thread *t)
{
	struct victim *victim = &victims[below(&t->random, NR_VICTIMS)];
	size_t length = 0;

	if (pthread_mutex_trylock(&victim->lock))
		return false;
	if (!victim->length || one_in(&t->random, 4)) {
		victim->gpu = below(&t->random, NR_GPUS);
		length = random_length(t);
		if (length < victim->length)
			length = victim->length;
		if (!allocate(victim->gpu, victim->va, length))
			length = 0;
	} else {
		release_memory(t, victim->gpu, victim->va);
	}
	__atomic_store_n(&victim->length, length, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&victim->lock);
	return true;
}

/* The child has the device open, too, and may close it last. */
static bool op_fork(struct thread *t)
{
	unsigned int microseconds = below(&t->random, 20000);
	pid_t pid;

	if (!one_in(&t->random, 8))
		return false;
	pid = fork();
	if (!pid) {
		usleep(microseconds);
		_exit(0);
	}
	if (pid < 0)
		wrong("fork: %s", strerror(errno));
	return true;
}

/* One operation. Weights are out of 100. */

static const struct {
	enum op op;
	unsigned int weight;
} weights[] = {
	{ OP_ALLOC, 11 }, { OP_FREE, 3 }, { OP_REPLACE, 2 }, { OP_FREE_REGISTERED, 5 },
	{ OP_REGISTER, 20 }, { OP_DEREGISTER, 8 }, { OP_TRANSFER, 11 }, { OP_CHECK, 9 },
	{ OP_OLD_KEY, 2 }, { OP_HOST_MEMORY, 3 }, { OP_NOT_OURS, 3 }, { OP_RACE_REGISTER, 12 },
	{ OP_RACE_FREE, 10 }, { OP_FORK, 1 },
};

static enum op pick_op(struct thread *t)
{
	unsigned int number = below(&t->random, 100), i = 0;

	while (number >= weights[i].weight)
		number -= weights[i++].weight;
	return weights[i].op;
}

/* false: there was nothing to do it to */
static bool run_op(struct thread *t, enum op op)
{
	struct buffer *buffer = any_buffer(t);

	switch (op) {
	case OP_ALLOC: return op_alloc(t, buffer);
	case OP_FREE: return op_free(t, buffer);
	case OP_REPLACE: return op_replace(t, buffer);
	case OP_FREE_REGISTERED: return op_free_registered(t, buffer);
	case OP_REGISTER: return op_register(t, buffer);
	case OP_DEREGISTER: return op_deregister(t, buffer);
	case OP_TRANSFER: return op_transfer(t, buffer);
	case OP_CHECK: return op_check(t, buffer);
	case OP_OLD_KEY: return op_old_key(t);
	case OP_HOST_MEMORY: return op_host_memory(t);
	case OP_NOT_OURS: return op_not_ours(t, buffer);
	case OP_RACE_REGISTER: return op_race_register(t);
	case OP_RACE_FREE: return op_race_free(t);
	case OP_FORK: return op_fork(t);
	default: return false;
	}
}

/* How the process ends: never in a tidy way. */
static void end_process(struct thread *t)
{
	ending = true;
	count(OP_EXIT);
	if (one_in(&t->random, 3))
		raise(SIGSEGV);
	if (one_in(&t->random, 2)) {
		close(nic_command_fd(nic));
		usleep(below(&t->random, 5000));
	}
	_exit(0);
}

static void *thread_main(void *argument)
{
	struct thread *t = argument;

	while (!shared->stop) {
		enum op op = pick_op(t);

		t->beat->op = op;
		t->beat->since = seconds_now();
		if (run_op(t, op)) {
			count(op);
			if (atomic_fetch_sub(&life, 1) == 1)
				end_process(t);
		}
	}
	return NULL;
}

/* Setting up. */

static unsigned long reserve_addresses(unsigned int slots)
{
	char *all = mmap(NULL, (slots + 1) * SLOT, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (all == MAP_FAILED)
		wrong("mmap: %s", strerror(errno));
	return ((unsigned long)all + SLOT - 1) & ~(SLOT - 1);
}

static void prepare_thread(struct thread *t, unsigned int process, unsigned int generation,
			   unsigned int number, unsigned long addresses)
{
	t->process = process;
	t->number = number;
	t->random = random_for(process, generation, number);
	t->beat = &shared->beats[process][number];
	t->beat->pid = getpid();
	for (unsigned int i = 0; i < NR_BUFFERS; i++)
		t->buffers[i].va = addresses + i * SLOT;
	t->scratch = aligned_alloc(WINDOW, SCRATCH);
	memset(t->scratch, 0, SCRATCH);
	t->scratch_mr = nic_register(nic, (unsigned long)t->scratch, SCRATCH);
	if (!t->scratch_mr)
		wrong("registration of host memory: %s", strerror(errno));
	connect_again(t);
}

static void open_devices(void)
{
	for (unsigned int i = 0; i < NR_GPUS; i++) {
		gpus[i] = gpu_open(i);
		if (gpus[i] < 0)
			wrong("GPU %u: %s", i, strerror(errno));
	}
	nic = nic_open("rxe0");
	if (!nic)
		wrong("NIC: %s", strerror(errno));
}

/* It is a thread's own file. */
static void *start_thread(void *argument)
{
	struct thread *t = argument;

	t->make_it_fail = options.fail_slab ? open("/proc/thread-self/make-it-fail", O_WRONLY) : -1;
	if (options.fail_slab && t->make_it_fail < 0)
		wrong("make-it-fail: %s", strerror(errno));
	return thread_main(t);
}

void worker(unsigned int process, unsigned int generation)
{
	struct random random = random_for(process, generation, MAX_THREADS);
	unsigned long addresses = reserve_addresses(NR_VICTIMS + options.threads * NR_BUFFERS);
	pthread_t ids[MAX_THREADS];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	life = 100 + below(&random, 3000);
	open_devices();
	for (unsigned int i = 0; i < NR_VICTIMS; i++) {
		pthread_mutex_init(&victims[i].lock, NULL);
		victims[i].va = addresses + i * SLOT;
	}
	addresses += NR_VICTIMS * SLOT;
	for (unsigned int i = 0; i < options.threads; i++, addresses += NR_BUFFERS * SLOT)
		prepare_thread(&threads[i], process, generation, i, addresses);
	for (unsigned int i = 0; i < options.threads; i++)
		if (pthread_create(&ids[i], NULL, start_thread, &threads[i]))
			wrong("pthread_create failed");
	for (unsigned int i = 0; i < options.threads; i++)
		pthread_join(ids[i], NULL);
	_exit(0);
}
