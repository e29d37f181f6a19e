/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory that several threads map, make and unmap at once, while jobs run and children end. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "rig.h"
#include "tests/support/tap.h"

#define THREADS 6
#define BYTES   (256u << 10)

TestSuite(process_threads, .timeout = 300);

static struct rig rig;
static atomic_bool is_over;
static atomic_uint mapped, refused;

/* Threads count failures here, and the main thread reports them. */
static atomic_uint wrong;

static bool map_one(int file, uint64_t *state, struct engine_memory **ret)
{
	const struct engine_handle handle = { .kind = REGION_KIND_MEMFD,
		                              .fd = file,
		                              .offset = (uint64_t)oracle_between(state, 0, 4096),
		                              .size = BYTES / 2,
		                              .writable = oracle_random(state) % 2 };
	struct engine_export made = { .fd = -1 };
	struct error err;
	const int r = oracle_random(state) % 2
	                  ? engine_create(rig.engine, REGION_KIND_MEMFD, BYTES, ret, &made, &err)
	                  : engine_map(rig.engine, &handle, ret, &err);

	if (made.fd >= 0)
		close(made.fd);
	if (r < 0 && r != STATUS_DEVICE_LOST)
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_add(r == 0 ? &mapped : &refused, 1);
	return r == 0;
}

static void *map_and_unmap(void *arg)
{
	enum { MOST = 8 };
	uint64_t state = (uintptr_t)arg;
	struct engine_memory *memory[MOST];
	const int file = rig_file(BYTES);
	int n = 0;

	while (!atomic_load(&is_over)) {
		const bool is_full = n == MOST || (n > 0 && oracle_random(&state) % 2);

		if (!is_full)
			n += map_one(file, &state, &memory[n]);
		else
			engine_unmap(rig.engine, memory[--n]);
	}
	while (n > 0)
		engine_unmap(rig.engine, memory[--n]);
	close(file);
	return NULL;
}

Test(process_threads, map_and_unmap)
{
	enum { JOBS = 50 };
	static struct work work[JOBS];
	const uint32_t rounds = (uint32_t)tap_portion(300);
	pthread_t thread[THREADS];
	struct engine_memory *dst, *src;
	struct engine_stream *stream;
	uint64_t state = 1;

	rig_open(&rig, rig_openers[0].name, NULL);
	dst = rig_make(&rig, REGION_KIND_MEMFD, BYTES);
	src = rig_make(&rig, REGION_KIND_MEMFD, BYTES);
	stream = engine_stream_new(rig.engine, &rig.owner);
	for (uintptr_t i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, map_and_unmap, (void *)(i + 1)), 0);
	for (uint32_t round = 1; round <= rounds; round++) {
		rig.n_done = 0;
		for (int i = 0; i < JOBS; i++) {
			work_init_copy(&work[i], &rig, BYTES, dst, 0, src, 0);
			engine_submit(rig.engine, stream, &work[i].job);
		}
		usleep((useconds_t)oracle_between(&state, 0, 5000));
		cr_assert_eq(kill(rig_child(&rig), SIGKILL), 0);
		rig_wait(&rig, JOBS);
		rig_wait_for_return(&rig, round);
		memset(src->host, (int)round, BYTES);
		rig.n_done = 0;
		work_init_copy(&work[0], &rig, BYTES, dst, 0, src, 0);
		engine_submit(rig.engine, stream, &work[0].job);
		rig_wait(&rig, 1);
		cr_assert_eq(work[0].job.status, 0, "round %u: %d", round, work[0].job.status);
		cr_assert_eq(memcmp(dst->host, src->host, BYTES), 0, "round %u", round);
	}
	atomic_store(&is_over, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	cr_expect_eq(atomic_load(&wrong), 0);
	cr_expect_gt(atomic_load(&mapped), 0);
	cr_expect_eq(rig.engine->dropped, 0);
	engine_stream_free(rig.engine, stream);
	engine_unmap(rig.engine, dst);
	engine_unmap(rig.engine, src);
	cr_expect_eq(atomic_load(&rig.engine->memories), 0);
	rig_close(&rig);
}
