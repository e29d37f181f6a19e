/* SPDX-License-Identifier: Apache-2.0 */
/* A job with a side in host memory is carried out in rounds, and either side may pass through scratch memory
 * on the device. This is pure arithmetic: it calls no driver, so it is tested without one.
 *
 * A kernel can use host memory in place, at the price of a trip over the bus for each access. Where most of
 * the bytes between the first and the last byte of the source are read, it is better to copy all of them to
 * the device in one go. Where the destination has no gaps, it is better to write it on the device and copy it
 * out in one go. Large jobs are divided into rounds, so that one comes in while another runs and a third goes
 * out.
 *
 * If a job transposes, a round reads a part of each of the source's rows. Rounds are enlarged to make these
 * parts long; if they are then long enough for the copy engine, it copies only them. If they stay short,
 * rounds are tiles of both sides, and the copy engine also copies parts of the destination's rows out. If
 * those would be short, too, the whole source has to come in before anything can go out, which halves the
 * speed. The copy engine also copies rows where less than half of the source is read, and where the
 * destination has gaps.
 *
 * In all other cases a kernel uses host memory in place: sides of few bytes, sides with gaps whose rows are
 * short, and batches. Lists of blocks are in packing.h.
 */
#ifndef KERNELS_CUDA_STAGE_STAGING_H
#define KERNELS_CUDA_STAGE_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/nest/narrow.h"
#include "kernels/transform/transform.h"
#include "packing.h"

#define STAGING_MOST_SLOTS 3

enum staging_place { STAGING_ON_DEVICE, STAGING_ON_HOST };

enum staging_way {
	STAGING_DIRECT, /* The kernel uses the tensor where it is. */
	/* The source is copied once for all rounds: each round copies what it needs and is still missing. */
	STAGING_WHOLE,
	STAGING_ROUND,  /* Each round has its part in a slot of scratch memory. */
	STAGING_STRIPE, /* Each round has its rows in a slot, packed without the bytes between them. */
};

struct staging_limits {
	uint64_t direct_bytes; /* sides of at most this many bytes are used in place */
	uint64_t round_bytes;  /* bytes of the destination in a round */
	uint64_t row_bytes;    /* least bytes of a row that the copy engine copies; 0: it copies no rows */
	uint64_t tile_bytes;   /* bytes of the destination in a round that is a tile */
	/* Rounds are tiles where the source's rows would otherwise be shorter than this, provided that the
	 * rows of both sides are at least this long in a tile. 0: rounds are never tiles. */
	uint64_t tile_row_bytes;
	uint64_t scratch_bytes; /* scratch memory that one job may use; 0: none */
};

struct staging {
	const struct transform *transform;
	const struct plan *plan;
	enum staging_way src;
	enum staging_way dst;
	bool run;        /* Both sides are one run of bytes, so that no kernel is needed. */
	uint64_t rounds; /* number of rounds; 0: there is nothing to do */
	/* Maximum number of rounds under way, each in a slot of its own: round i uses slot i % slots. */
	uint32_t slots;
	uint64_t scratch_bytes;
	uint64_t row_bytes; /* the limit of that name */
	/* The job is a list of blocks that travels by `packing`, unless the list turns out to be unfit for
	 * that. */
	bool is_packed;
	struct packing packing;

	/* Bytes of scratch memory: src_bytes for the whole source (STAGING_WHOLE) or for a slot's part of it,
	 * dst_bytes for a slot's part of the destination. If `run` is set, bytes are copied out from the
	 * place to which they were copied in. */
	uint64_t src_bytes;
	uint64_t dst_bytes;

	/* Rounds divide n_axes axes. A round has at most step[a] indices of each such axis[a], and all
	 * indices of the other axes. In the numbering of rounds, the last of the divided axes varies
	 * fastest. */
	int n_axes;
	int8_t axis[TENSOR_MAX_RANK];
	int64_t step[TENSOR_MAX_RANK];
	int64_t run_step; /* bytes of a round if `run` is set */
};

/* Decides how a transform with this plan travels. Both must outlive *ret. */
void staging_init(struct staging *ret, const struct transform *transform, const struct plan *plan,
                  enum staging_place dst, enum staging_place src, const struct staging_limits *limits);

/* Sets *ret for a job that is launched as a whole, with each side used where it lies. any is false if there
 * is nothing to do. */
void staging_init_direct(struct staging *ret, bool any);

/* Sets *ret for a list of blocks that travels packed. */
void staging_init_packed(struct staging *ret, const struct packing *packing);

/* Returns whether the job takes more than a single launch or copy between the places where the tensors
 * lie. */
static inline bool staging_is_needed(const struct staging *staging)
{
	return staging->rounds > 1 || staging->scratch_bytes > 0 || staging->is_packed;
}

/* Describes the part of the job that one round moves. Offsets are in bytes from element [0, ..., 0] of the
 * job's source or destination. */
struct staging_round {
	/* Not set if `run` is. Element [0, ..., 0] of its source is that of the job's source. */
	struct transform transform;
	int64_t dst_offset; /* offset of element [0, ..., 0] of its destination */
	struct tensor_extent reads;
	struct tensor_extent writes;
	/* For sides by STAGING_STRIPE: the rows that the round copies in and those that it copies out. The
	 * first of them begin at reads.low and at writes.low. On such a side the transform addresses the rows
	 * as packed without gaps. */
	struct row_box src_box;
	struct row_box dst_box;
};

void staging_round(const struct staging *staging, uint64_t i, struct staging_round *ret);

/* These return the place in scratch memory of round i's part of a side whose first byte lies at `address` in
 * host memory. scratch must be a multiple of STAGING_ALIGN. Except for packed rows, the place is the same
 * modulo STAGING_ALIGN as `address`, so that aligned data stays aligned. */
#define STAGING_ALIGN 256
uint64_t staging_src_place(const struct staging *staging, uint64_t scratch, uint64_t i, uint64_t address);
uint64_t staging_dst_place(const struct staging *staging, uint64_t scratch, uint64_t i, uint64_t address);

/* staging_slot_place returns the address of round i's slot, which holds its part of the source (unless that
 * stays for all rounds) followed by its part of the destination. staging_slot_bytes returns the size of a
 * slot. */
uint64_t staging_slot_place(const struct staging *staging, uint64_t scratch, uint64_t i);
uint64_t staging_slot_bytes(const struct staging *staging);

#endif
