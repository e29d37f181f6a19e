/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of the TMA unit, from its issue until it has completed and its issuer knows. */
#ifndef TESTS_SOFTGPU_MODEL_UNIT_H
#define TESTS_SOFTGPU_MODEL_UNIT_H

#include "machine.h"

enum op_state { LOAD_ISSUED, STORE_ISSUED, STORE_READ, STORE_WRITTEN };

struct unit_op {
	enum op_state state;
	const struct model_thread *issuer;
	struct model_block *block; /* the issuer's block */
	uint32_t offset;           /* offset in the block's shared memory */
	uint32_t span;             /* bytes of shared memory that it occupies */
	uint32_t bytes;            /* bytes that it moves */
	uint64_t in_flight;        /* for a load: bytes as count_op returned them */
	bool is_tile;
	struct tensor_map_layout layout;
	int32_t c[TENSOR_MAP_MAX_RANK];
	uint64_t address; /* address of the tensor, or of the bytes of a bulk operation */
	bool is_copy;     /* a load from the issuer's shared memory, at offset from */
	uint32_t from;
	uint32_t barrier;        /* for a load: offset of the barrier in each block of mask */
	uint32_t mask;           /* for a load: bit i stands for block i of the cluster */
	uint32_t group;          /* for a store: the issuer's group that it belongs to */
	bool waited;             /* the issuer knows that the shared memory was read */
	unsigned char *snapshot; /* the bytes that a store has read, in the order of pieces */
};

/* Return an operation on the tile at c, or on bytes. They fail if the map, rank, coordinates or memory are
 * invalid. */
struct unit_op unit_tile(const void *tile, const void *map, uint32_t rank, const int32_t *c, bool write);
struct unit_op unit_bulk(const void *shared, uint64_t global, uint32_t bytes, bool write);

/* Issues the load to the blocks of the mask; what names the instruction in reports. */
void unit_issue_load(struct unit_op op, uint32_t barrier, uint32_t mask, const char *what);

#endif
