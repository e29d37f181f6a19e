/* SPDX-License-Identifier: Apache-2.0 */
/* Cases about memory of every kind, shared by two clients; overlaps; and the descriptor cache. */
#include <stdlib.h>
#include <string.h>

#include "clients.h"
#include "clients_move.h"
#include "clients_store.h"
#include "tests/support/tap.h"

/* Offsets of regions in their memory: the source is well aligned, the destination only as much as
 * required. */
#define SRC_AT 4096
#define DST_AT 1040

static int64_t scale_of(const struct service *service)
{
	return service->is_stand_in ? 1 : 16;
}

static size_t room_for_moves(int64_t scale)
{
	size_t most = 0;

	for (size_t i = 0; i < n_moves; i++) {
		struct move move = move_scaled(&moves[i], scale);
		size_t room = move_room(&move);

		most = room > most ? room : most;
	}
	return most;
}

static void check_moves(const struct service *service, tma_client *client, struct store *dst,
                        struct store *src, uint64_t seed)
{
	int rounds = service->is_stand_in ? 2 : 8;
	uint64_t state = seed;

	for (int round = 0; round < rounds; round++)
		for (size_t i = 0; i < n_moves; i++) {
			struct move move = move_scaled(&moves[i], scale_of(service));

			move_check(client, dst, src, &move, &state);
		}
}

/* ---- The client's memory
 * -------------------------------------------------------------------------------- */

typedef void store_make(struct store *ret, size_t size);

/* Regions overlap if their memory does, whichever regions name it; but the driver cannot tell that two
 * descriptors are of one allocation. */
static void check_overlap(tma_client *client, const struct store *store, enum store_way way)
{
	tma_region *one = store_region(store, client, way, store->at, 8192);
	tma_region *other = store_region(store, client, way, store->at + 4096, 8192);
	bool is_known = !store->is_mapped;
	struct tma_tensor dst = { .region = one, .dtype = TMA_UINT8, .rank = 1, .shape = { 4097 } };
	struct tma_tensor src = { .region = other, .dtype = TMA_UINT8, .rank = 1, .shape = { 4097 } };
	int status = tma_copy(client, &dst, &src);

	require(status == TMA_OVERLAP || (status == 0 && !is_known),
	        "two regions of one memory, overlapping: %s, not OVERLAP",
	        status ? tma_status_name(status) : "copied");
	dst.shape[0] = src.shape[0] = 4096;
	must(client, tma_copy(client, &dst, &src));
	src.region = one;
	src.offset = 4095;
	status = tma_copy(client, &dst, &src);
	require(status == TMA_OVERLAP, "tensors of one region, overlapping: %s, not OVERLAP",
	        status ? tma_status_name(status) : "copied");
	tma_region_release(one);
	tma_region_release(other);
}

static void use_own(const struct service *service, uint64_t seed, store_make *make, enum store_way way)
{
	size_t room = room_for_moves(scale_of(service));
	tma_client *client = client_connect(service);
	struct store dst, src;

	store_open_device();
	make(&dst, DST_AT + room + 512);
	make(&src, SRC_AT + room + 512);
	store_share(&dst, client, way, DST_AT, room);
	store_share(&src, client, way, SRC_AT, room);
	check_moves(service, client, &dst, &src, seed);
	check_overlap(client, &src, way);
	store_free(&dst);
	store_free(&src);
	tma_free(client);
}

static void use_allocated(const struct service *service, uint64_t seed)
{
	use_own(service, seed, store_allocate, STORE_BY_POINTER);
}

static void use_created(const struct service *service, uint64_t seed)
{
	use_own(service, seed, store_create, STORE_BY_POINTER);
}

static void use_exported(const struct service *service, uint64_t seed)
{
	use_own(service, seed, store_create, STORE_BY_FD);
}

/* ---- The service's memory
 * ------------------------------------------------------------------------------- */

static void check_zeroed(const struct store *store)
{
	uint8_t *data = calloc(1, store->size);

	require(data, "out of memory");
	memset(data, 1, store->size);
	store_read(store, data);
	for (size_t i = 0; i < store->size; i++)
		require(data[i] == 0, "new memory is %#x at byte %zu", data[i], i);
	free(data);
}

static void use_service_made(const struct service *service, uint64_t seed)
{
	size_t room = room_for_moves(scale_of(service));
	tma_client *client = client_connect(service);
	struct store dst, src;

	store_open_device();
	for (int i = 0; i < 2; i++) {
		store_import(&dst, client, room);
		store_import(&src, client, room + 1);
		check_zeroed(&dst);
		check_zeroed(&src);
		check_moves(service, client, &dst, &src, seed + (uint64_t)i);
		store_free(&dst);
		store_free(&src);
	}
	tma_free(client);
}

/* ---- Host and device
 * -------------------------------------------------------------------------------------- */

/* The job is larger than several of the rounds into which it is divided. */
static void use_host(const struct service *service, uint64_t seed)
{
	static const struct move rows[] = {
		{ "a copy in rounds", TMA_UINT8, { 1, 1 << 20 }, 0, 0, { 0, 1 }, { 0, 0 }, { 0, 0 } },
		{ "a transpose in rounds", TMA_FLOAT64, { 128, 1024 }, 0, 0, { 1, 0 }, { 0, 0 }, { 0, 0 } },
	};
	bool soft = service->is_stand_in;
	int64_t scale[] = { soft ? 40 : 192, soft ? 20 : 150 };
	tma_client *client = client_connect(service);
	struct store host, device;
	uint64_t state = seed;

	store_open_device();
	for (int i = 0; i < 2; i++) {
		struct move move = rows[i];
		size_t room;

		move.shape[0] *= scale[i];
		room = move_room(&move);
		store_host(&host, 4096 + room + 100);
		store_allocate(&device, DST_AT + room + 100);
		store_share(&host, client, STORE_BY_FD, 4096, room);
		store_share(&device, client, STORE_BY_POINTER, DST_AT, room);
		move_check(client, &device, &host, &move, &state);
		move_check(client, &host, &device, &move, &state);
		store_free(&host);
		store_free(&device);
	}
	tma_free(client);
}

/* Uses small moves with every kind of kernel. */
static void use_host_moves(const struct service *service, uint64_t seed)
{
	size_t room = room_for_moves(scale_of(service));
	tma_client *client = client_connect(service);
	struct store host, device;

	store_open_device();
	store_host(&host, SRC_AT + room + 512);
	store_create(&device, DST_AT + room + 512);
	store_share(&host, client, STORE_BY_FD, SRC_AT, room);
	store_share(&device, client, STORE_BY_FD, DST_AT, room);
	check_moves(service, client, &device, &host, seed);
	check_moves(service, client, &host, &device, seed + 1);
	store_free(&host);
	store_free(&device);
	tma_free(client);
}

/* ---- The descriptor cache ----------------------------------------------------------------------------- */

static void use_addresses(const struct service *service, uint64_t seed)
{
	enum { PLACES = 40, STEP = 16 * 37 };
	struct move move = { "one layout", TMA_FLOAT16, { 64, 96 }, 0, 0, { 1, 0 }, { 0, 0 }, { 0, 0 } };
	size_t room = move_room(&move) + (size_t)PLACES * STEP;
	tma_client *client = client_connect(service);
	int64_t hits, misses;
	struct store dst, src;
	uint64_t state = seed;

	store_open_device();
	store_allocate(&dst, room);
	store_allocate(&src, room);
	store_share(&dst, client, STORE_BY_POINTER, 0, room);
	store_share(&src, client, STORE_BY_POINTER, 0, room);
	move_check(client, &dst, &src, &move, &state);
	require(strcmp(tma_last_result(client)->path, "tile_transpose") == 0, "it went by %s",
	        tma_last_result(client)->path);
	hits = client_stat(client, "tensor_maps.hits");
	misses = client_stat(client, "tensor_maps.misses");
	for (uint64_t i = 1; i <= PLACES; i++) {
		move.dst_bytes = i * STEP;
		move.src_bytes = (PLACES - i) * STEP;
		move_check(client, &dst, &src, &move, &state);
	}
	hits = client_stat(client, "tensor_maps.hits") - hits;
	misses = client_stat(client, "tensor_maps.misses") - misses;
	require(hits >= PLACES && misses == 0, "%d addresses: %d hits, %d misses", PLACES, (int)hits,
	        (int)misses);
	store_free(&dst);
	store_free(&src);
	tma_free(client);
}

/* ---- The cases
 * -------------------------------------------------------------------------------------------- */

void memory_cases(const struct service *service)
{
	static const struct {
		const char *name;
		client_run *runs[2];
	} rows[] = {
		{ "two clients with cuda_ipc memory", { use_allocated, use_allocated } },
		{ "two clients with memory of cuMemCreate, by its pointer", { use_created, use_created } },
		{ "two clients with memory of cuMemCreate, by descriptor", { use_exported, use_exported } },
		{ "cuda_ipc beside cuda_fd", { use_allocated, use_exported } },
		{ "two clients with memory of the service's", { use_service_made, use_service_made } },
		{ "host memory, in rounds", { use_host, NULL } },
		{ "host memory beside device memory", { use_host_moves, use_allocated } },
		{ "one layout at many addresses takes one set of tensor maps", { use_addresses, NULL } },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		uint64_t start = client_now_ns();
		bool good = true;
		pid_t pids[2];

		for (int k = 0; k < 2; k++)
			pids[k] = rows[i].runs[k]
			              ? client_start(rows[i].runs[k], service, 100 * i + (uint64_t)k + 1)
			              : 0;
		for (int k = 0; k < 2; k++)
			good = (!pids[k] || client_wait(pids[k])) && good;
		tap_note("%d ms", (int)((client_now_ns() - start) / 1000000));
		tap_case(good && service_lives(service), "%s", rows[i].name);
	}
}
