/* SPDX-License-Identifier: Apache-2.0 */
/* A call takes a pair of streams whose last work has ended: if work that waits for another of the program's
 * streams were still queued there, it could delay this call's work, even for ever. If no pair is idle, or if
 * there is no memory for a new pair or for scratch, the caller's kernel moves the list over the bus instead.
 *
 * Launches read a list in memory of the device where it lies. On the way in, a launch skips an entry that
 * names no block. On the way out, the copy engine would write the block of such an entry all the same, so the
 * list is fetched and checked first. That happens only if the stream has nothing left to do, because the
 * fetch would otherwise wait for it. */
#include "offload.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "proto/arithmetic.h"
#include "proto/clock.h"
#include "round.h"

#define MOST_PAIRS 8

/* A driver queues about a thousand commands of a stream before it blocks the caller. */
#define MOST_COPIES 512

/* A launch may have to wait for other kernels of the program for a millisecond, and for another process's
 * turn for two or more. The bus moves 50 MiB in a millisecond, so the copy of a stretch of 128 MiB gives the
 * next launch enough time. Each turn also interrupts the other process. Beside one that multiplies matrices
 * on an H200, 768 MiB went out at 46.4 GB/s with 256 MiB of scratch memory, and the other process kept 0.86
 * of its rate. With 512 MiB of scratch memory, the figures were 49.6 GB/s and 0.91; 1 GiB was no better. So a
 * job takes twice SCRATCH_BYTES if that is at most one SMALL_PART-th of the memory that is free. */
#define SCRATCH_BYTES (256u << 20)
#define SMALL_PART    32
#define SLOTS         2

/* The longest wait for the copy of a list on the device. A list of 524,288 numbers takes 0.1 ms. */
#define FETCH_NS 500000

static const struct packing_limits own_limits = {
	.least_bytes = OFFLOAD_LEAST_BYTES,
	.run_bytes = UINT64_MAX, /* No thread copies. */
	.piece_bytes = 512u << 10,
	.slot_bytes = 2u << 20,
	.stretch_bytes = OFFLOAD_LEAST_BYTES,
	.scratch_bytes = SCRATCH_BYTES,
	.slots = SLOTS,
	.is_busy = true,
};

struct stream_pair {
	CUstream launches; /* with the highest priority */
	CUstream copies;
	CUevent handed_over;     /* recorded on one stream just before another is made to wait for it */
	CUevent launched[SLOTS]; /* recorded behind the launch that uses the slot */
	CUevent copied[SLOTS];   /* recorded behind the copies from or to the slot */
	CUevent done;            /* recorded behind everything */
	TAILQ_ENTRY(stream_pair) entry;
};

/* ---- Pairs -------------------------------------------------------------------------------------------- */

void offloads_init(struct offloads *offloads, struct uploads *uploads)
{
	*offloads = (struct offloads){ .uploads = uploads, .limits = own_limits, .fetch_ns = FETCH_NS };
	TAILQ_INIT(&offloads->free);
	pthread_mutex_init(&offloads->lock, NULL);
}

static int event_new(CUevent *ret, struct error *err)
{
	return driver_call(err, cuEventCreate, (ret, CU_EVENT_DISABLE_TIMING));
}

static void event_free(CUevent event)
{
	if (event)
		driver.cuEventDestroy(event);
}

static void pair_free(struct stream_pair *pair)
{
	event_free(pair->handed_over);
	event_free(pair->done);
	for (int i = 0; i < SLOTS; i++) {
		event_free(pair->launched[i]);
		event_free(pair->copied[i]);
	}
	if (pair->launches)
		driver.cuStreamDestroy(pair->launches);
	if (pair->copies)
		driver.cuStreamDestroy(pair->copies);
	free(pair);
}

void offloads_deinit(struct offloads *offloads)
{
	struct stream_pair *pair;

	while ((pair = TAILQ_FIRST(&offloads->free))) {
		TAILQ_REMOVE(&offloads->free, pair, entry);
		pair_free(pair);
	}
}

static int pair_new(struct stream_pair **ret, struct error *err)
{
	struct stream_pair *pair = calloc(1, sizeof *pair);
	int r;

	if (!pair)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	r = driver_stream(&pair->launches, STREAM_HIGHEST, err);
	if (r == 0)
		r = driver_stream(&pair->copies, STREAM_HIGHEST, err);
	if (r == 0)
		r = event_new(&pair->handed_over, err);
	if (r == 0)
		r = event_new(&pair->done, err);
	for (int i = 0; i < SLOTS && r == 0; i++) {
		r = event_new(&pair->launched[i], err);
		if (r == 0)
			r = event_new(&pair->copied[i], err);
	}
	if (r < 0)
		pair_free(pair);
	else
		*ret = pair;
	return r;
}

static bool is_idle(const struct stream_pair *pair)
{
	return driver.cuEventQuery(pair->done) == CUDA_SUCCESS;
}

/* Takes a pair that is idle and returns it, or returns NULL. Sets *ret_may_make to whether the caller may
 * make another pair, which has then been counted in offloads->made. */
static struct stream_pair *take_made(struct offloads *offloads, bool *ret_may_make)
{
	struct stream_pair *pair;

	pthread_mutex_lock(&offloads->lock);
	TAILQ_FOREACH(pair, &offloads->free, entry)
		if (is_idle(pair))
			break;
	if (pair)
		TAILQ_REMOVE(&offloads->free, pair, entry);
	*ret_may_make = !pair && offloads->made < MOST_PAIRS;
	offloads->made += *ret_may_make;
	pthread_mutex_unlock(&offloads->lock);
	return pair;
}

/* Gives a pair back. NULL says that the pair that take_made has counted could not be made. */
static void give(struct offloads *offloads, struct stream_pair *pair)
{
	pthread_mutex_lock(&offloads->lock);
	if (pair)
		TAILQ_INSERT_TAIL(&offloads->free, pair, entry);
	else
		offloads->made--;
	pthread_mutex_unlock(&offloads->lock);
}

/* Sets *ret to a pair of streams for this call, or to NULL if all are busy. Returns 0 or an error. */
static int take(struct offloads *offloads, struct stream_pair **ret, struct error *err)
{
	bool may_make;
	int r;

	*ret = take_made(offloads, &may_make);
	if (!may_make)
		return 0;
	r = pair_new(ret, err);
	if (r < 0)
		give(offloads, NULL);
	return r;
}

/* ---- One job ------------------------------------------------------------------------------------------ */

struct offload {
	struct packing packing;
	struct launcher *launcher;
	struct engine_job *job;
	struct stream_pair *pair;
	uint64_t dst, src; /* device addresses of element [0, ..., 0] of block 0 of layer 0 */
	uint64_t counts;   /* device address of a struct engine_counts */
	/* Bytes of the list at the start of the pages, if it was fetched and checked; launches read it from
	 * the device memory that was lent with the pages. 0: it was not fetched. */
	uint64_t checked_bytes;
	struct upload *upload; /* pages with the list, followed by room for the layers' offsets */
	CUdeviceptr scratch;
};

static int hand_over(struct stream_pair *pair, CUstream from, CUstream to, struct error *err)
{
	int r = driver_call(err, cuEventRecord, (pair->handed_over, from));

	return r < 0 ? r
	             : driver_call(err, cuStreamWaitEvent, (to, pair->handed_over, CU_EVENT_WAIT_DEFAULT));
}

static int wait_for(CUstream stream, CUevent event, struct error *err)
{
	return driver_call(err, cuStreamWaitEvent, (stream, event, CU_EVENT_WAIT_DEFAULT));
}

static uint64_t dst_of(const struct offload *offload, uint32_t slot)
{
	const struct packing *p = &offload->packing;

	return p->dst.way == PACKING_IN_PLACE ? offload->dst : packing_dst_place(p, offload->scratch, slot);
}

static uint64_t src_of(const struct offload *offload, uint32_t slot)
{
	const struct packing *p = &offload->packing;

	return p->src.way == PACKING_IN_PLACE ? offload->src : packing_src_place(p, offload->scratch, slot);
}

static int launch(struct offload *offload, const struct packing_stretch *stretch, uint32_t slot,
                  struct error *err)
{
	/* Each entry is counted once, whatever the number of layers. */
	const bool counts = offload->packing.list_is_kept && stretch->layer == 0;
	struct packing_launch list;
	int r;

	packing_launch(&offload->packing, stretch, offload->scratch, &list);
	r = many_launch_listed(
	    offload->launcher, offload->pair->launches, &offload->job->move, &list.blocks,
	    &(struct many_list){ list.index, list.dst_layers, list.src_layers, counts ? offload->counts : 0 },
	    dst_of(offload, slot) + (uint64_t)list.dst, src_of(offload, slot) + (uint64_t)list.src, err);
	offload->job->blocks->family = list.blocks.family;
	return r < 0 ? r
	             : driver_call(err, cuEventRecord,
	                           (offload->pair->launched[slot], offload->pair->launches));
}

static int copy(const struct offload *offload, uint64_t dst, uint64_t src, uint64_t bytes, struct error *err)
{
	return driver_call(err, cuMemcpyAsync, (dst, src, (size_t)bytes, offload->pair->copies));
}

static int copy_rows(const struct offload *offload, const struct packing_side *host,
                     const struct packing_rows *rows, uint64_t packed, bool is_out, struct error *err)
{
	const uint64_t place = (is_out ? offload->dst : offload->src) + (uint64_t)rows->first.place;
	struct copied_rows copied = { .host = place,
		                      .device = packed + rows->first.at,
		                      .host_step = rows->step,
		                      .device_step = host->pitch,
		                      .bytes = rows->first.bytes,
		                      .n = rows->n };

	return rows->n == 1 ? copy(offload, is_out ? copied.host : copied.device,
	                           is_out ? copied.device : copied.host, copied.bytes, err)
	                    : driver_copy_rows(&copied, is_out, offload->pair->copies, err);
}

/* Copies a stretch between the host and its packed place in scratch memory, with as few commands as its
 * layout on the host allows. */
static int copy_packed(const struct offload *offload, const struct packing_stretch *stretch, uint64_t packed,
                       struct error *err)
{
	const bool is_out = offload->packing.dst.way != PACKING_IN_PLACE;
	const struct packing_side *host = is_out ? &offload->packing.dst : &offload->packing.src;
	const uint64_t end = packing_bytes(host, stretch);
	struct packing_rows rows;
	uint64_t at = 0;
	int r = 0;

	while (r == 0 &&
	       (rows = packing_next_rows(&offload->packing, host, stretch, &at, end)).first.bytes > 0)
		r = copy_rows(offload, host, &rows, packed, is_out, err);
	return r;
}

/* Copies a stretch directly from its blocks in the source to its blocks in the destination. */
static int copy_plain(const struct offload *offload, const struct packing_stretch *stretch, struct error *err)
{
	const struct packing *p = &offload->packing;
	const uint64_t end = packing_bytes(&p->dst, stretch);
	struct packing_piece to, from;
	uint64_t at = 0, within;
	int r = 0;

	while (r == 0 && (to = packing_next(&p->dst, stretch, &at, end)).bytes > 0) {
		within = to.at;
		while (r == 0 && (from = packing_next(&p->src, stretch, &within, to.at + to.bytes)).bytes > 0)
			r = copy(offload, offload->dst + (uint64_t)to.place + from.at - to.at,
			         offload->src + (uint64_t)from.place, from.bytes, err);
	}
	return r;
}

/* Gathers a stretch into its slot by a launch, after the slot's earlier contents have been copied out, and
 * copies it out behind the launch. */
static int bring_out(struct offload *offload, const struct packing_stretch *stretch, uint32_t slot,
                     bool is_used, struct error *err)
{
	struct stream_pair *pair = offload->pair;
	int r = is_used ? wait_for(pair->launches, pair->copied[slot], err) : 0;

	if (r == 0)
		r = launch(offload, stretch, slot, err);
	if (r == 0)
		r = wait_for(pair->copies, pair->launched[slot], err);
	if (r == 0)
		r = copy_packed(offload, stretch, dst_of(offload, slot), err);
	return r < 0 ? r : driver_call(err, cuEventRecord, (pair->copied[slot], pair->copies));
}

static int bring_in(struct offload *offload, const struct packing_stretch *stretch, uint32_t slot,
                    bool is_used, struct error *err)
{
	struct stream_pair *pair = offload->pair;
	int r = is_used ? wait_for(pair->copies, pair->launched[slot], err) : 0;

	if (r == 0)
		r = copy_packed(offload, stretch, src_of(offload, slot), err);
	if (r == 0)
		r = driver_call(err, cuEventRecord, (pair->copied[slot], pair->copies));
	if (r == 0)
		r = wait_for(pair->launches, pair->copied[slot], err);
	return r < 0 ? r : launch(offload, stretch, slot, err);
}

static int move_stretches(struct offload *offload, struct error *err)
{
	const struct packing *p = &offload->packing;
	const bool is_out = p->dst.way != PACKING_IN_PLACE;
	struct packing_cursor at = { 0 };
	int r = 0;

	while (r == 0 && !packing_is_at_end(p, &at)) {
		const uint32_t slot = (uint32_t)(at.stretches % p->slots);
		const bool is_used = at.stretches >= p->slots;
		struct packing_stretch stretch;

		packing_stretch_next(p, &at, true, &stretch);
		if (p->is_plain)
			r = copy_plain(offload, &stretch, err);
		else if (is_out)
			r = bring_out(offload, &stretch, slot, is_used, err);
		else
			r = bring_in(offload, &stretch, slot, is_used, err);
	}
	return r;
}

/* ---- From the program's stream and back to it --------------------------------------------------------- */

static uint64_t layers_bytes(const struct packing *p)
{
	return p->blocks->layers * sizeof(int64_t);
}

/* Returns the bytes of pages needed: for the arrays of packing_read and for the layers' offsets of both
 * sides. */
static uint64_t list_bytes(const struct packing *p)
{
	return divide_up_u64(packing_list_bytes(p), 8) * 8 + 2 * layers_bytes(p);
}

/* Copies a part of the list to the pages unless it is there already, so that the job's own memory is no
 * longer needed when the call returns. Returns where the part is in the pages. */
static const void *pinned_part(const struct offload *offload, enum packing_part part,
                               const struct packing_upload *upload)
{
	const struct packing *p = &offload->packing;
	char *to = offload->upload->host + divide_up_u64(packing_list_bytes(p), 8) * 8 +
	           (part == PACKING_SRC_LAYERS ? layers_bytes(p) : 0);

	return part == PACKING_INDEX ? upload->bytes : memcpy(to, upload->bytes, upload->size);
}

static int send_list(const struct offload *offload, struct error *err)
{
	int r = 0;

	for (enum packing_part part = 0; part < PACKING_PARTS && r == 0; part++) {
		struct packing_upload upload;

		packing_upload(&offload->packing, part, &upload);
		if (upload.size > 0)
			r = driver_call(err, cuMemcpyHtoDAsync,
			                (offload->scratch + upload.at, pinned_part(offload, part, &upload),
			                 upload.size, offload->pair->launches));
	}
	return r;
}

/* Makes both streams of the pair wait for the program's stream, and sends the list. Copies do not wait for
 * the list: if another process uses the device, the list may arrive only once it is this process's turn. */
static int fork_from(struct offload *offload, CUstream stream, struct error *err)
{
	struct stream_pair *pair = offload->pair;
	int r = hand_over(pair, stream, pair->launches, err);

	if (r == 0)
		r = hand_over(pair, pair->launches, pair->copies, err);
	if (r == 0 && offload->scratch)
		r = send_list(offload, err);
	if (r == 0 && offload->checked_bytes > 0)
		r = driver_call(
		    err, cuMemcpyHtoDAsync,
		    (offload->upload->device, offload->upload->host, offload->checked_bytes, pair->launches));
	return r;
}

static int join_to(struct offload *offload, CUstream stream, struct error *err)
{
	struct stream_pair *pair = offload->pair;
	int r = hand_over(pair, pair->copies, pair->launches, err);

	if (r == 0 && offload->scratch) {
		r = driver_call(err, cuMemFreeAsync, (offload->scratch, pair->launches));
		offload->scratch = 0;
	}
	if (r == 0)
		r = driver_call(err, cuEventRecord, (pair->done, pair->launches));
	return r < 0 ? r : wait_for(stream, pair->done, err);
}

/* After a failure, some of the work may be under way without an event that tells of its end, so this waits
 * for both streams. */
static void abandon(struct offload *offload)
{
	driver.cuStreamSynchronize(offload->pair->launches);
	driver.cuStreamSynchronize(offload->pair->copies);
	if (offload->scratch)
		driver.cuMemFreeAsync(offload->scratch, offload->pair->launches);
}

static int enqueue(struct offload *offload, CUstream stream, struct error *err)
{
	int r = fork_from(offload, stream, err);

	if (r == 0)
		r = move_stretches(offload, err);
	if (r == 0)
		r = join_to(offload, stream, err);
	if (r < 0)
		abandon(offload);
	return r;
}

/* ---- Whether it is to travel so ----------------------------------------------------------------------- */

/* Range of the pinned host allocation that was looked up last; bytes == 0: none. */
struct pinned {
	uint64_t start;
	uint64_t bytes;
};

static bool is_within(const struct pinned *pinned, uint64_t address, uint64_t bytes)
{
	return address >= pinned->start && address - pinned->start <= pinned->bytes &&
	       bytes <= pinned->bytes - (address - pinned->start);
}

/* Returns whether the bytes lie in a single allocation of pinned host memory. *pinned caches the last
 * allocation. */
static bool is_pinned(struct pinned *pinned, uint64_t address, uint64_t bytes)
{
	CUdeviceptr start = 0;
	CUmemorytype type = CU_MEMORYTYPE_DEVICE;
	size_t size = 0;

	if (is_within(pinned, address, bytes))
		return true;
	if (driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
	    type != CU_MEMORYTYPE_HOST ||
	    driver.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
	        CUDA_SUCCESS ||
	    driver.cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) != CUDA_SUCCESS)
		return false;
	*pinned = (struct pinned){ start, size };
	return is_within(pinned, address, bytes);
}

/* Returns whether the pieces of a side in a stretch are few enough and, on the host, each within one pinned
 * allocation. Adds their number to *n. */
static bool has_good_pieces(const struct offload *offload, const struct packing_side *side,
                            const struct packing_stretch *stretch, struct pinned *pinned, uint64_t *n)
{
	const uint64_t base = side == &offload->packing.dst ? offload->dst : offload->src;
	const uint64_t end = packing_bytes(side, stretch);
	const bool is_host = side->way != PACKING_IN_PLACE;
	struct packing_rows rows = { .n = 1 };
	uint64_t at = 0;

	for (;;) {
		if (offload->packing.is_plain)
			rows.first = packing_next(side, stretch, &at, end);
		else
			rows = packing_next_rows(&offload->packing, side, stretch, &at, end);
		if (rows.first.bytes == 0)
			return true;
		if (++*n > MOST_COPIES ||
		    (is_host && !is_pinned(pinned, base + (uint64_t)rows.first.place,
		                           (rows.n - 1) * rows.step + rows.first.bytes)))
			return false;
	}
}

/* Returns whether all copies are possible and few enough not to fill the driver's queue. */
static bool can_be_copied(const struct offload *offload)
{
	const struct packing *p = &offload->packing;
	const bool is_out = p->dst.way != PACKING_IN_PLACE;
	struct packing_cursor at = { 0 };
	struct pinned pinned = { 0 };
	uint64_t n = 0;
	bool can = true;

	while (can && !packing_is_at_end(p, &at)) {
		struct packing_stretch stretch;

		packing_stretch_next(p, &at, true, &stretch);
		can = has_good_pieces(offload, is_out ? &p->dst : &p->src, &stretch, &pinned, &n) &&
		      (!p->is_plain ||
		       has_good_pieces(offload, is_out ? &p->src : &p->dst, &stretch, &pinned, &n));
	}
	return can;
}

/* Allocates scratch memory in the order of the launches stream, before anything is enqueued there. */
static int take_scratch(struct offload *offload, CUmemoryPool pool, struct error *err)
{
	return offload->packing.scratch_bytes == 0
	           ? 0
	           : driver_call(
			 err, cuMemAllocFromPoolAsync,
			 (&offload->scratch, offload->packing.scratch_bytes, pool, offload->pair->launches));
}

static uint64_t address_of(struct engine_memory *memory, uint64_t offset)
{
	return cuda_memory(memory)->address + offset;
}

static uint64_t list_address(const struct engine_blocks *blocks)
{
	return address_of(blocks->index_memory, blocks->index_offset);
}

/* Copies the list to the pages and waits for that, but for no longer than most_ns: copies of other streams
 * may be queued before this one, even some that wait for the calling thread. Sets *ret_is_there to whether
 * the copy has ended. If it has not, the pair and the pages are not used again before it ends. The program's
 * stream is idle, so the pair's stream need not be made to wait for it. */
static int fetch_list(const struct offload *offload, uint64_t bytes, uint64_t most_ns, bool *ret_is_there,
                      struct error *err)
{
	const struct stream_pair *pair = offload->pair;
	const uint64_t until = clock_ns() + most_ns;
	int r = driver_call(err, cuMemcpyAsync,
	                    ((CUdeviceptr)(uintptr_t)offload->upload->host,
	                     list_address(offload->packing.blocks), (size_t)bytes, pair->launches));

	if (r == 0)
		r = driver_call(err, cuEventRecord, (pair->done, pair->launches));
	while (r == 0 && !(*ret_is_there = is_idle(pair)) && clock_ns() < until)
		continue;
	return r;
}

/* Returns whether each entry of a list of blocks->n numbers names a block. An entry that does not is either
 * negative, so that its own highest bit is set, or above `last`, so that the highest bit of last - entry
 * is. */
static bool names_only_blocks(const void *list, const struct engine_blocks *blocks)
{
	const uint64_t last = blocks->limit - 1;
	const uint64_t *wide = list;
	const uint32_t *narrow = list;
	uint64_t wrong = 0;
	uint32_t narrow_wrong = 0;

	if (blocks->index_bytes == sizeof *wide) {
		for (uint64_t i = 0; i < blocks->n; i++)
			wrong |= le64toh(wide[i]) | (last - le64toh(wide[i]));
		return wrong >> 63 == 0;
	}
	for (uint64_t i = 0; i < blocks->n; i++)
		narrow_wrong |= le32toh(narrow[i]) | ((uint32_t)last - le32toh(narrow[i]));
	return narrow_wrong >> 31 == 0;
}

/* Lets launches read the list on the device. If the list has to be checked first, it is fetched, and launches
 * read the copy that was checked, because the list itself may have been overwritten by then. Sets
 * *ret_is_known to false if the list could not be fetched in time or an entry names no block, otherwise to
 * true. */
static int take_kept_list(struct offload *offload, uint64_t most_ns, bool *ret_is_known, struct error *err)
{
	struct packing *p = &offload->packing;
	const struct engine_blocks *blocks = p->blocks;
	const uint64_t bytes = blocks->n * blocks->index_bytes;
	char *pages = offload->upload->host;
	uint64_t at = list_address(blocks);
	int r = 0;

	*ret_is_known = true;
	if (p->dst.way != PACKING_IN_PLACE) {
		r = fetch_list(offload, bytes, most_ns, ret_is_known, err);
		if (r < 0 || !*ret_is_known)
			return r;
		*ret_is_known = names_only_blocks(pages, blocks);
		offload->checked_bytes = bytes;
		at = offload->upload->device;
	}
	packing_take_all(p, at, (uint32_t *)(pages + bytes));
	return 0;
}

/* Reads the list, and enqueues the move of its blocks unless the list is unfit for that. */
static int read_and_enqueue(struct offloads *offloads, struct offload *offload, CUstream stream,
                            bool *ret_is_done, struct error *err)
{
	struct packing *p = &offload->packing;
	bool is_known = true;
	int r = 0;

	if (p->list_is_kept)
		r = take_kept_list(offload, offloads->fetch_ns, &is_known, err);
	else
		packing_read(p, p->blocks->index, (uint32_t *)offload->upload->host);
	if (r < 0)
		return r;
	if (!is_known || !packing_judge(p, offloads->limits.slot_bytes) || !can_be_copied(offload)) {
		p->blocks->passed = p->blocks->beyond = 0;
		return 0;
	}
	r = take_scratch(offload, offloads->uploads->pool, err);
	if (r < 0) {
		p->blocks->passed = p->blocks->beyond = 0;
		return r;
	}
	*ret_is_done = true;
	p->blocks->family = cuda_plan(offload->job->move.plan)->family;
	return enqueue(offload, stream, err);
}

static int launch_by_copies(struct offloads *offloads, struct offload *offload, CUstream stream,
                            bool *ret_is_done, struct error *err)
{
	int r, end;

	r = upload_take(offloads->uploads, offload->pair->launches, list_bytes(&offload->packing),
	                &offload->upload, err);
	if (r < 0)
		return r;
	r = read_and_enqueue(offloads, offload, stream, ret_is_done, err);
	end = upload_give(offload->upload, offload->pair->launches, err);
	return r < 0 ? r : end;
}

/* Treats a lack of memory as a job that was not enqueued, so that the caller's kernel moves the list. */
static int launch_if_there_is_room(struct offloads *offloads, struct offload *offload, CUstream stream,
                                   bool *ret_is_done, struct error *err)
{
	int r = take(offloads, &offload->pair, err);

	if (r == 0 && offload->pair) {
		r = launch_by_copies(offloads, offload, stream, ret_is_done, err);
		give(offloads, offload->pair);
	}
	return r == STATUS_NO_MEMORY && !*ret_is_done ? 0 : r;
}

/* Returns the bytes of scratch memory that the job may take. The driver is asked for the free memory only if
 * the job would use more than limits->scratch_bytes. */
static uint64_t scratch_limit(const struct packing_limits *limits, const struct engine_job *job)
{
	const uint64_t twice = 2 * limits->scratch_bytes;
	size_t free_bytes, total_bytes;

	if (job_bytes(job) / 2 <= limits->scratch_bytes ||
	    driver.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS || free_bytes / SMALL_PART < twice)
		return limits->scratch_bytes;
	return twice;
}

int offload_launch(struct offloads *offloads, struct launcher *launcher, struct engine_job *job,
                   bool dst_is_host, bool src_is_host, CUstream stream, uint64_t counts, bool *ret_is_done,
                   struct error *err)
{
	const struct packing_places places = { dst_is_host, src_is_host, job->blocks->index == NULL };
	const bool has_to_be_known = places.list_is_kept && dst_is_host;
	struct offload offload = { .launcher = launcher, .job = job, .counts = counts };
	struct packing_limits limits = offloads->limits;
	CUstreamCaptureMode mode;
	int r = 0;

	*ret_is_done = false;
	if (job->move.transform->conversion.is || dst_is_host == src_is_host)
		return 0;
	limits.scratch_bytes = scratch_limit(&offloads->limits, job);
	if (!packing_init(&offload.packing, job, &places, &limits))
		return 0;
	offload.dst = address_of(job->move.dst, job->move.dst_offset);
	offload.src = address_of(job->move.src, job->move.src_offset);
	mode = capture_allow();
	if (!stream_is_captured(stream) && (!has_to_be_known || driver.cuStreamQuery(stream) == CUDA_SUCCESS))
		r = launch_if_there_is_room(offloads, &offload, stream, ret_is_done, err);
	capture_restore(mode);
	return r;
}
