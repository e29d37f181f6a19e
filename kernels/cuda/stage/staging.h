/* SPDX-License-Identifier: Apache-2.0 */
/* A job with a side in host memory is carried out in rounds, and a side of it may go through
 * scratch memory on the device. Pure: knows no driver, so it is tested without one.
 *
 * A kernel can use host memory in place, at the price of a trip over the bus for each access. Where most of
 * the bytes between the source's first and last are read, it is better to copy all of them to the device in
 * one stretch; where the destination has no gaps, it is better to write it on the device and copy it out in
 * one stretch. Large jobs are divided into rounds, so that one comes in while another runs and a third goes
 * out.
 *
 * A round of a transposed destination reads a part of each of the source's rows. Where such parts are long
 * enough for the copy engine, it brings them, and rounds are as large as it takes to make them long. Where
 * they stay short, rounds are tiles of both sides, and the copy engine takes out parts of the destination's
 * rows as well; and where those would be short, too, all of the source has to come before anything can go
 * out, at half of the speed. The same copies bring a source of which less than half is read, and take out a
 * destination with gaps.
 *
 * A kernel uses host memory in place for what is left: sides of few bytes, sides with gaps whose rows are
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
	STAGING_DIRECT, /* the kernel uses it where it is */
	/* The source is brought once: each round brings what is still missing, and it stays. */
	STAGING_WHOLE,
	STAGING_ROUND,  /* each round has a part of it in a slot */
	STAGING_STRIPE, /* each round has its rows in a slot, without the bytes between them */
};

struct staging_limits {
	uint64_t direct_bytes; /* sides of up to so many bytes are used in place */
	uint64_t round_bytes;  /* bytes of the destination in a round */
	uint64_t row_bytes;    /* least bytes of a row for the copy engine; 0: it takes no rows */
	uint64_t tile_bytes;   /* bytes of the destination in a round that is a tile */
	/* Rounds are tiles where the source's rows would be shorter than this otherwise, and no side's are in
	 * a tile; 0: rounds are never tiles. */
	uint64_t tile_row_bytes;
	uint64_t scratch_bytes; /* scratch memory that one job can have; 0: none */
};

struct staging {
	const struct transform *transform;
	const struct plan *plan;
	enum staging_way src;
	enum staging_way dst;
	bool run;        /* Both sides are one run of bytes, which needs no kernel. */
	uint64_t rounds; /* 0: there is nothing to do */
	uint32_t slots;  /* slots that can be under way; round i uses slot i % slots */
	uint64_t scratch_bytes;
	uint64_t row_bytes; /* from the limits */
	/* It is a list of blocks that travels by `packing`, if the list turns out to be fit for that. */
	bool is_packed;
	struct packing packing;

	/* src_bytes are those of the whole source or of a slot's part of it, dst_bytes those of a slot's part
	 * of the destination. If `run` is set, what is brought in is taken out from the same place. */
	uint64_t src_bytes;
	uint64_t dst_bytes;

	/* A round has `step` indices at a time of each of these axes, of which the last counts fastest. */
	int n_axes;
	int8_t axis[TENSOR_MAX_RANK];
	int64_t step[TENSOR_MAX_RANK];
	int64_t run_step; /* bytes, when run */
};

/* Decides how a transform travels by a plan. Both must outlive *ret. */
void staging_init(struct staging *ret, const struct transform *transform, const struct plan *plan,
                  enum staging_place dst, enum staging_place src, const struct staging_limits *limits);

/* Sets *ret for a job that runs in one go, each side where it is. The flag is false if there is nothing to
 * do. */
void staging_init_direct(struct staging *ret, bool any);

/* Sets *ret for a list of blocks that travels packed. */
void staging_init_packed(struct staging *ret, const struct packing *packing);

/* Returns whether it is more than one launch or copy between the places where the tensors are. */
static inline bool staging_is_needed(const struct staging *staging)
{
	return staging->rounds > 1 || staging->scratch_bytes > 0 || staging->is_packed;
}

/* A round reads and writes these: bytes from elements [0, ..., 0] of the job's source and destination. */
struct staging_round {
	struct transform transform; /* unless `run`; its source's element [0, ..., 0] is the job's */
	int64_t dst_offset;         /* where its destination's element [0, ..., 0] is */
	struct tensor_extent reads;
	struct tensor_extent writes;
	/* These are set for sides that go by STRIPE: the rows that the round brings from the first byte of
	 * `reads` on, and takes out from the first byte of `writes` on. The transform's source or destination
	 * is then these rows without gaps. */
	struct row_box src_box;
	struct row_box dst_box;
};

void staging_round(const struct staging *staging, uint64_t i, struct staging_round *ret);

/* These return where a part that lies at address in host memory has its place in the scratch memory, which
 * starts at a multiple of STAGING_ALIGN: with the same phase, so that what is aligned stays so. */
#define STAGING_ALIGN 256
uint64_t staging_src_place(const struct staging *staging, uint64_t scratch, uint64_t i, uint64_t address);
uint64_t staging_dst_place(const struct staging *staging, uint64_t scratch, uint64_t i, uint64_t address);

/* staging_slot_place returns the slot of round i, which holds its part of the source, unless that stays for
 * all rounds, and behind it its part of the destination. staging_slot_bytes returns the size of a slot. */
uint64_t staging_slot_place(const struct staging *staging, uint64_t scratch, uint64_t i);
uint64_t staging_slot_bytes(const struct staging *staging);

#endif
