/* SPDX-License-Identifier: Apache-2.0 */
/* How a job with a side in host memory is carried out: in which rounds, and which side of it goes through
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
 * What is left for a kernel that uses host memory in place: sides of few bytes, sides with gaps whose rows
 * are short, and batches. Lists of blocks are in packing.h.
 */
#ifndef KERNELS_CUDA_STAGE_STAGING_H
#define KERNELS_CUDA_STAGE_STAGING_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/nest/row_box.h"
#include "kernels/transform/transform.h"
#include "packing.h"

#define STAGING_MOST_SLOTS 3

enum staging_place { STAGING_ON_DEVICE, STAGING_ON_HOST };

enum staging_way {
	STAGING_DIRECT, /* where it is */
	STAGING_WHOLE,  /* the source: brought once, rounds bring what is still missing, and it stays */
	STAGING_ROUND,  /* a part for each round, in a slot */
	STAGING_STRIPE, /* likewise, but without what lies between the rows that the round reads or writes */
};

struct staging_limits {
	uint64_t direct_bytes;   /* a side of so few bytes is not worth a stop on the way */
	uint64_t round_bytes;    /* of the destination */
	uint64_t row_bytes;      /* that the copy engine takes at least of a row; 0: it takes no rows */
	uint64_t tile_bytes;     /* of the destination, in rounds that are tiles */
	uint64_t tile_row_bytes; /* rounds are tiles where the source's rows would be shorter otherwise, and
	                            no side's are in a tile; 0: never */
	uint64_t scratch_bytes;  /* that one job can have; 0: none */
};

struct staging {
	const struct transform *transform;
	const struct plan *plan;
	enum staging_way src;
	enum staging_way dst;
	bool run;        /* one run of bytes on both sides, which needs no kernel */
	uint64_t rounds; /* 0: there is nothing to do */
	uint32_t slots;  /* round i uses slot i % slots: so many can be under way */
	uint64_t scratch_bytes;
	uint64_t row_bytes; /* of the limits */
	bool is_packed;     /* a list of blocks that travels by `packing`, if its list turns out to be fit for
	                       that */
	struct packing packing;

	/* Of the whole source or of a slot's part of it, and of a slot's part of the destination; when run,
	 * what is brought in is taken out from the same place. */
	uint64_t src_bytes;
	uint64_t dst_bytes;

	/* The cut: so many indices at a time of each of these axes, of which the last counts fastest. */
	int n_axes;
	int8_t axis[TENSOR_MAX_RANK];
	int64_t step[TENSOR_MAX_RANK];
	int64_t run_step; /* bytes, when run */
};

/* Both must outlive *ret. */
void staging_init(struct staging *ret, const struct transform *transform, const struct plan *plan,
                  enum staging_place dst, enum staging_place src, const struct staging_limits *limits);

/* Of a job that runs in one go, each side where it is; false: there is nothing to do. */
void staging_init_direct(struct staging *ret, bool any);

/* Of a list of blocks that travels packed. */
void staging_init_packed(struct staging *ret, const struct packing *packing);

/* Whether it is more than one launch or copy between the places where the tensors are. */
static inline bool staging_is_needed(const struct staging *staging)
{
	return staging->rounds > 1 || staging->scratch_bytes > 0 || staging->is_packed;
}

/* What a round reads and writes: bytes from elements [0, ..., 0] of the job's source and destination. */
struct staging_round {
	struct transform transform; /* when not run; its source's element [0, ..., 0] is the job's */
	int64_t dst_offset;         /* of its destination's element [0, ..., 0] */
	struct tensor_extent reads;
	struct tensor_extent writes;
	/* By STRIPE: what it brings from the first byte of reads on, and takes out from the first byte of
	 * writes on; the transform's source or destination is then that without gaps. */
	struct row_box src_box;
	struct row_box dst_box;
};

void staging_round(const struct staging *staging, uint64_t i, struct staging_round *ret);

/* Where a part that lies at address in host memory has its place in the scratch memory, which starts at a
 * multiple of STAGING_ALIGN: with the same phase, so that what is aligned stays so. */
#define STAGING_ALIGN 256
uint64_t staging_src_place(const struct staging *staging, uint64_t scratch, uint64_t i, uint64_t address);
uint64_t staging_dst_place(const struct staging *staging, uint64_t scratch, uint64_t i, uint64_t address);

/* The slot in which round i has what is not there for all rounds: its part of the source, and behind that its
 * part of the destination. */
uint64_t staging_slot_place(const struct staging *staging, uint64_t scratch, uint64_t i);
uint64_t staging_slot_bytes(const struct staging *staging);

#endif
