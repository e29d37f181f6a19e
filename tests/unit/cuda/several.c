/* SPDX-License-Identifier: Apache-2.0 */
/* Tests engines of two devices in one process: both are open at once, one thread drives them in turn, and
 * each maps memory of the other as a peer. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cuda/driver/driver.h"
#include "rig.h"
#include "tests/softgpu/live.h"

enum { N = 32, BYTES = N * N * 4, ROUNDS = 60 };

static struct engine *both[2];
static struct engine_owner owners[2];
static struct engine_stream *streams[2];

static void ignore(void *arg)
{
	(void)arg;
}

static void *open_one(void *arg)
{
	const size_t i = *(const size_t *)arg;
	const struct engine_options options = {
		.device = i ? "1" : "0", .tensor_maps = 16, .wake = ignore, .drives = true
	};
	struct error err;

	cr_assert_eq(engine_cuda_open(&both[i], &options, &err), 0, "%s", err.message);
	return NULL;
}

static void open_both(const char *links)
{
	const struct cuda_limits limits = small_limits();
	const size_t which[2] = { 0, 1 };
	pthread_t threads[2];

	setenv("SOFTGPU_DEVICES", "2", 1);
	setenv("SOFTGPU_LINKS", links, 1);
	cuda_limits_force(&limits);
	for (size_t i = 0; i < 2; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, open_one, (void *)&which[i]), 0);
	for (size_t i = 0; i < 2; i++) {
		pthread_join(threads[i], NULL);
		engine_owner_init(&owners[i]);
		streams[i] = engine_stream_new(both[i], &owners[i]);
	}
}

static void close_both(void)
{
	char live[1000];

	for (size_t i = 0; i < 2; i++) {
		engine_stream_free(both[i], streams[i]);
		engine_owner_deinit(&owners[i]);
		engine_close(both[i]);
	}
	cr_assert_eq(softgpu_live(live, sizeof live), 0, "%s", live);
	driver_close();
	cuda_limits_force(NULL);
}

static struct engine_memory *make(size_t i, enum region_kind kind, struct engine_export *ret)
{
	struct engine_memory *memory;
	struct error err;

	cr_assert_eq(engine_create(both[i], kind, BYTES, &memory, ret, &err), 0, "%s", err.message);
	return memory;
}

static struct engine_memory *make_own(size_t i)
{
	struct engine_export export;
	struct engine_memory *memory = make(i, REGION_KIND_CUDA_FD, &export);

	close(export.fd);
	return memory;
}

static void submit(size_t i, struct work *work, struct engine_memory *dst, struct engine_memory *src)
{
	engine = both[i];
	work_init(work, N, true, dst, src);
	engine_submit(both[i], streams[i], &work->job);
}

/* Runs a transpose on one of the engines to its end. */
static void transpose(size_t i, struct engine_memory *dst, struct engine_memory *src)
{
	static struct work work;
	const size_t before = n_done;

	submit(i, &work, dst, src);
	while (n_done == before) {
		engine_drive(both[i], 100000);
		engine_reap(both[i]);
	}
	cr_assert_eq(work.job.status, 0);
}

static void fill(struct engine_memory *memory, unsigned seed)
{
	for (uint32_t i = 0; i < N * N; i++)
		((uint32_t *)data(memory))[i] = seed * 100003 + i;
}

static void expect_transposed(struct engine_memory *memory, unsigned seed, const char *what)
{
	const uint32_t *words = (const uint32_t *)data(memory);

	for (uint32_t i = 0; i < N; i++)
		for (uint32_t j = 0; j < N; j++)
			cr_assert_eq(words[j * N + i], seed * 100003 + i * N + j, "%s: %u, %u", what, i, j);
}

Test(several, are_opened_at_once)
{
	struct engine_link link;
	struct error err;

	open_both("all:pcie");
	cr_assert_eq(engine_cuda_count(&err), 2, "%s", err.message);
	cr_assert_str_neq(both[0]->uuid, both[1]->uuid);
	cr_assert_str_eq(both[0]->device_name, "softgpu");
	cr_assert_eq(both[1]->memory_bytes, UINT64_C(1) << 30);
	engine_link(both[0], both[1]->uuid, &link);
	cr_assert_eq(link.kind, ENGINE_LINK_PCIE);
	cr_assert_eq(link.rank, 0);
	engine_link(both[1], both[1]->uuid, &link);
	cr_assert_eq(link.kind, ENGINE_LINK_NONE, "to itself");
	engine_link(both[1], "GPU-1", &link);
	cr_assert_eq(link.kind, ENGINE_LINK_NONE, "to one that is not there");
	close_both();
}

/* The thread's current context is that of the engine that it drives. */
Test(several, are_driven_in_turn_by_one_thread)
{
	static struct work work[2];
	struct engine_memory *dst[2], *src[2];

	open_both("all:18");
	for (size_t i = 0; i < 2; i++) {
		dst[i] = make_own(i);
		src[i] = make_own(i);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		n_done = 0;
		for (size_t i = 0; i < 2; i++) {
			fill(src[i], 2 * round + (unsigned)i);
			submit(i, &work[i], dst[i], src[i]);
		}
		while (n_done < 2)
			for (size_t i = 0; i < 2; i++) {
				engine_drive(both[i], round % 3 ? 1000000 : 0);
				engine_reap(both[i]);
			}
		for (size_t i = 0; i < 2; i++)
			expect_transposed(dst[i], 2 * round + (unsigned)i, "in turn");
	}
	for (size_t i = 0; i < 2; i++) {
		engine_unmap(both[i], dst[i]);
		engine_unmap(both[i], src[i]);
	}
	close_both();
}

/* ---- Peers -------------------------------------------------------------------------------------------- */

static const enum region_kind kinds[] = { REGION_KIND_CUDA_FD, REGION_KIND_CUDA_IPC, REGION_KIND_MEMFD };

static struct engine_handle handle_of(enum region_kind kind, const struct engine_export *export, bool is_peer)
{
	return (struct engine_handle){ .kind = kind,
		                       .fd = export->fd,
		                       .size = BYTES,
		                       .writable = true,
		                       .handle = { (const char *)export->handle, export->handle_len },
		                       .is_peer = is_peer };
}

static struct engine_memory *map(size_t i, const struct engine_handle *handle)
{
	struct engine_memory *memory;
	struct error err;

	cr_assert_eq(engine_map(both[i], handle, &memory, &err), 0, "%s", err.message);
	return memory;
}

Test(several, memory_of_each_other)
{
	open_both("all:18");
	for (unsigned k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		const char *name = region_kind_names[kinds[k]];
		struct engine_memory *home, *there, *own = make_own(1);
		struct engine_export export;
		struct engine_handle handle;

		home = make(0, kinds[k], &export);
		handle = handle_of(kinds[k], &export, true);
		there = map(1, &handle);
		fill(home, k);
		transpose(1, own, there);
		expect_transposed(own, k, name);
		fill(own, k + 10);
		transpose(1, there, own);
		expect_transposed(home, k + 10, name);
		engine_unmap(both[1], there);
		engine_unmap(both[0], home);
		engine_unmap(both[1], own);
		if (export.fd >= 0)
			close(export.fd);
	}
	close_both();
}

/* The first engine has the only descriptor of the allocation. */
Test(several, memory_of_the_other_as_a_part)
{
	struct engine_memory *home, *there, *own;

	open_both("all:18");
	home = make_own(0);
	own = make_own(1);
	const struct engine_part part = { .fd = -1, .memory = home, .size = 2 << 20 };
	const struct engine_handle handle = { .kind = REGION_KIND_CUDA_FD,
		                              .fd = -1,
		                              .size = BYTES,
		                              .parts = &part,
		                              .n_parts = 1,
		                              .is_peer = true };

	there = map(1, &handle);
	fill(home, 5);
	transpose(1, own, there);
	expect_transposed(own, 5, "a part");
	engine_unmap(both[0], home);
	transpose(1, own, there);
	expect_transposed(own, 5, "the other has let it go");
	engine_unmap(both[1], there);
	engine_unmap(both[1], own);
	close_both();
}

Test(several, what_is_not_a_peers_is_refused)
{
	open_both("all:18");
	for (unsigned k = 0; k < 2; k++) {
		struct engine_memory *home, *there;
		struct engine_export export;
		struct engine_handle handle;
		struct error err;

		home = make(0, kinds[k], &export);
		handle = handle_of(kinds[k], &export, false);
		cr_assert_eq(engine_map(both[1], &handle, &there, &err), STATUS_INVALID_ARGUMENT, "%s",
		             region_kind_names[kinds[k]]);
		engine_unmap(both[0], home);
		if (export.fd >= 0)
			close(export.fd);
	}
	close_both();
}

Test(several, without_peer_access)
{
	open_both("all:none");
	for (unsigned k = 0; k < 2; k++) {
		struct engine_memory *home, *there;
		struct engine_export export;
		struct engine_handle handle;
		struct error err;

		home = make(0, kinds[k], &export);
		handle = handle_of(kinds[k], &export, true);
		cr_assert_eq(engine_map(both[1], &handle, &there, &err), STATUS_UNSUPPORTED, "%s",
		             region_kind_names[kinds[k]]);
		cr_assert(strstr(err.message, "no peer access to device 0"), "%s", err.message);
		engine_unmap(both[0], home);
		if (export.fd >= 0)
			close(export.fd);
	}
	close_both();
}
