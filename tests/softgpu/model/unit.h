/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of the unit, from its issue until it has happened and its issuer has heard of that. */
#ifndef TESTS_SOFTGPU_MODEL_UNIT_H
#define TESTS_SOFTGPU_MODEL_UNIT_H

#include "machine.h"

enum op_state { LOAD_ISSUED, STORE_ISSUED, STORE_READ, STORE_WRITTEN };

struct unit_op {
	enum op_state state;
	const struct model_thread *issuer;
	struct model_block *block; /* the issuer's */
	uint32_t offset;           /* in shared memory */
	uint32_t span;             /* bytes of it */
	uint32_t bytes;            /* that are moved */
	uint64_t in_flight;        /* a load's count_op */
	bool is_tile;
	struct tensor_map_layout layout;
	int32_t c[TENSOR_MAP_MAX_RANK];
	uint64_t address; /* of the tensor, or of the bytes */
	bool is_copy;     /* a load whose bytes come from the issuer's shared memory, at from */
	uint32_t from;
	uint32_t barrier;        /* of a load: where it lies in each block of the mask */
	uint32_t mask;           /* of the blocks that a load goes to */
	uint32_t group;          /* of the issuer's */
	bool waited;             /* the issuer knows that the shared memory was read */
	unsigned char *snapshot; /* what a store has read, in the order of pieces */
};

/* An operation on the tile at c, or on bytes: map, rank, place and memory are right, or it fails. */
struct unit_op unit_tile(const void *tile, const void *map, uint32_t rank, const int32_t *c, bool write);
struct unit_op unit_bulk(const void *shared, uint64_t global, uint32_t bytes, bool write);

/* Sends it on its way to the blocks of the mask; what names the instruction. */
void unit_issue_load(struct unit_op op, uint32_t barrier, uint32_t mask, const char *what);

#endif
