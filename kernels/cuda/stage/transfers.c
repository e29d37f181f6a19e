/* SPDX-License-Identifier: Apache-2.0 */
/* Lends sets of pinned slots, and carries out transfers through them. */
#include "transfers.h"

#include <stdlib.h>
#include <sys/mman.h>

#define SLOTS     4 /* slots of a set: one is being packed while the copy engine has others left to copy */
#define MOST_SETS 4 /* 32 MiB of pinned memory for each CUDA context */
#define SET_BYTES (SLOTS * ENGINE_CHUNK_BYTES)

struct slot_set {
	void *memory;          /* pinned memory */
	CUevent copied[SLOTS]; /* recorded behind the last copy from or to the slot */
	TAILQ_ENTRY(slot_set) entry;
};

static void *slot_of(const struct slot_set *set, uint64_t chunk)
{
	return (char *)set->memory + chunk % SLOTS * ENGINE_CHUNK_BYTES;
}

/* ---- Sets --------------------------------------------------------------------------------------------- */

void transfers_init(struct transfers *transfers)
{
	*transfers = (struct transfers){ 0 };
	TAILQ_INIT(&transfers->free);
	pthread_mutex_init(&transfers->lock, NULL);
	pthread_cond_init(&transfers->given_back, NULL);
}

static void set_free(struct slot_set *set)
{
	for (int i = 0; i < SLOTS; i++)
		if (set->copied[i])
			driver.cuEventDestroy(set->copied[i]);
	driver_unpin(set->memory, SET_BYTES);
	free(set);
}

void transfers_deinit(struct transfers *transfers)
{
	struct slot_set *set;

	while ((set = TAILQ_FIRST(&transfers->free))) {
		TAILQ_REMOVE(&transfers->free, set, entry);
		set_free(set);
	}
}

static int set_new(struct slot_set **ret, struct error *err)
{
	struct slot_set *set = calloc(1, sizeof *set);
	int r;

	if (!set)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	/* Without MADV_DONTFORK, the first write after a fork could give this process a new page while the
	 * device keeps using the old one. */
	r = driver_pin(&set->memory, SET_BYTES, MADV_DONTFORK, 0, err);
	for (int i = 0; i < SLOTS && r == 0; i++)
		r = driver_call(err, cuEventCreate, (&set->copied[i], CU_EVENT_DISABLE_TIMING));
	if (r < 0)
		set_free(set);
	else
		*ret = set;
	return r;
}

/* Takes a set that no call uses and returns it, waiting while all MOST_SETS sets are lent. Returns NULL if
 * the caller must make a set, which has then been counted in transfers->made. */
static struct slot_set *take_made(struct transfers *transfers)
{
	struct slot_set *set;

	pthread_mutex_lock(&transfers->lock);
	while (TAILQ_EMPTY(&transfers->free) && transfers->made == MOST_SETS)
		pthread_cond_wait(&transfers->given_back, &transfers->lock);
	set = TAILQ_FIRST(&transfers->free);
	if (set)
		TAILQ_REMOVE(&transfers->free, set, entry);
	else
		transfers->made++;
	pthread_mutex_unlock(&transfers->lock);
	return set;
}

/* Gives a set back. NULL says that the set that take_made has counted could not be made. */
static void put_back(struct transfers *transfers, struct slot_set *set)
{
	pthread_mutex_lock(&transfers->lock);
	if (set)
		TAILQ_INSERT_HEAD(&transfers->free, set, entry);
	else
		transfers->made--;
	pthread_cond_signal(&transfers->given_back);
	pthread_mutex_unlock(&transfers->lock);
}

static int take(struct transfers *transfers, struct slot_set **ret, struct error *err)
{
	int r;

	*ret = take_made(transfers);
	if (*ret)
		return 0;
	r = set_new(ret, err);
	if (r < 0)
		put_back(transfers, NULL);
	return r;
}

/* Gives a set back. If r is an error, some copies may be under way without an event that tells of their end,
 * so this waits for the stream. */
static void give(struct transfers *transfers, struct slot_set *set, CUstream stream, int r)
{
	if (r < 0)
		driver.cuStreamSynchronize(stream);
	put_back(transfers, set);
}

/* ---- In ----------------------------------------------------------------------------------------------- */

static int bring_chunk_in(const struct slot_set *set, struct engine_transfer *transfer, uint64_t i,
                          uint64_t to, CUstream stream, struct error *err)
{
	const CUevent copied = set->copied[i % SLOTS];
	void *slot = slot_of(set, i);
	int r = driver_call(err, cuEventSynchronize, (copied));

	if (r == 0)
		r = transfer->pack(transfer, i, slot, err);
	if (r == 0)
		r = driver_call(err, cuMemcpyHtoDAsync,
		                (to, slot, transfer->chunk_bytes(transfer, i), stream));
	return r < 0 ? r : driver_call(err, cuEventRecord, (copied, stream));
}

int transfers_bring_in(struct transfers *transfers, struct engine_transfer *transfer, CUstream stream,
                       struct error *err)
{
	uint64_t to = transfer->address;
	struct slot_set *set;
	int r = take(transfers, &set, err);

	if (r < 0)
		return r;
	for (uint64_t i = 0; i < transfer->n_chunks && r == 0; i++) {
		r = bring_chunk_in(set, transfer, i, to, stream, err);
		to += transfer->chunk_bytes(transfer, i);
	}
	give(transfers, set, stream, r);
	return r;
}

/* ---- Out ---------------------------------------------------------------------------------------------- */

/* Starts the copy of chunk i, if there is such a chunk, and moves *from behind it. */
static int start_out(const struct slot_set *set, const struct engine_transfer *transfer, uint64_t i,
                     uint64_t *from, CUstream stream, struct error *err)
{
	uint64_t bytes;
	int r;

	if (i >= transfer->n_chunks)
		return 0;
	bytes = transfer->chunk_bytes(transfer, i);
	r = driver_call(err, cuMemcpyDtoHAsync, (slot_of(set, i), *from, bytes, stream));
	*from += bytes;
	return r < 0 ? r : driver_call(err, cuEventRecord, (set->copied[i % SLOTS], stream));
}

static int bring_out(const struct slot_set *set, struct engine_transfer *transfer, CUstream stream,
                     struct error *err)
{
	uint64_t from = transfer->address;
	int r = 0;

	/* The device may still be reading the slots for the previous call, on another stream. */
	for (uint64_t i = 0; i < SLOTS && r == 0; i++)
		r = driver_call(err, cuEventSynchronize, (set->copied[i]));
	for (uint64_t i = 0; i < SLOTS && r == 0; i++)
		r = start_out(set, transfer, i, &from, stream, err);
	for (uint64_t i = 0; i < transfer->n_chunks && r == 0; i++) {
		r = driver_call(err, cuEventSynchronize, (set->copied[i % SLOTS]));
		if (r == 0)
			r = transfer->pack(transfer, i, slot_of(set, i), err);
		if (r == 0)
			r = start_out(set, transfer, i + SLOTS, &from, stream, err);
	}
	return r;
}

int transfers_bring_out(struct transfers *transfers, struct engine_transfer *transfer, CUstream stream,
                        struct error *err)
{
	struct slot_set *set;
	int r = take(transfers, &set, err);

	if (r < 0)
		return r;
	r = bring_out(set, transfer, stream, err);
	give(transfers, set, stream, r);
	return r;
}
