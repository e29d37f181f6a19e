/* SPDX-License-Identifier: Apache-2.0 */
/* These functions turn the fields of a gather or scatter into the list of blocks that it asks for (blocks.h).
 * They have no side effects, like those of request.h. */
#ifndef KERNELS_TRANSFORM_REQUEST_BLOCKS_H
#define KERNELS_TRANSFORM_REQUEST_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks.h"
#include "proto/schema.h"
#include "transform.h"

/* One side's fields about its layers. */
struct request_layers {
	const char *side; /* "dst" */
	const struct msg_tensor *tensor;
	bool has_step, has_list, has_table, has_places;
	size_t list_bytes;
	uint64_t table;
	const struct bytes *places;
};

#define REQUEST_LAYERS(p, s)                                                                                \
	{                                                                                                   \
		.side = #s, .tensor = &(p)->s, .has_step = (p)->has & F(blocks, s##_layer_step),            \
		.has_list = (p)->has & F(blocks, s##_layers), .has_table = (p)->has & F(blocks, s##_table), \
		.has_places = (p)->has & F(blocks, s##_places), .list_bytes = (p)->s##_layers.len,          \
		.table = (p)->s##_table, .places = &(p)->s##_places                                         \
	}

/* Returns whether a side has its layers in a table, which is prepared or came with the request, and what
 * errors call it. */
static inline bool request_has_table(const struct request_layers *fields)
{
	return fields->has_table || fields->has_places;
}
const char *request_table_name(const struct request_layers *fields);

/* Refuses a side with a table that has anything else that says where its layers lie. */
int request_check_table(const struct request_layers *fields, struct error *err);

/* Checks the layers of both sides, dst first, and sets how many there are. entries: how many the table of
 * each side has; 0: it has none. */
int request_count_layers(const struct msg_blocks *p, const struct request_layers sides[2],
                         const uint32_t entries[2], uint32_t *ret, struct error *err);

/* Checks which of its places a run of a plan over tables has. */
int request_check_run_tables(const struct msg_plan_run *p, struct error *err);

/* Refuses a run without tables that lacks a place. */
int request_check_run_places(const struct msg_plan_run *p, struct error *err);

/* Checks the fields about entries, and sets how many there are and of how many bytes each is. */
int request_check_entries(const struct msg_blocks *p, struct engine_blocks *ret, struct error *err);

/* Copies the lists that came in the message, which need not be aligned, into words, and has blocks point to
 * the copies. There must be room for request_list_bytes. Returns room for as many offsets as dst has layers
 * where dst has a list of layers, else NULL. */
size_t request_list_bytes(const struct msg_blocks *p);
int64_t *request_copy_lists(const struct msg_blocks *p, int64_t *words, struct engine_blocks *blocks);

/* request_block returns the transform that moves one block. request_block_spec sets the spec of that
 * transform with its splits carried out, or returns UNSUPPORTED if a split's last block is incomplete. */
struct msg_transform request_block(const struct msg_blocks *p);
int request_block_spec(const struct msg_transform *block, struct transform_spec *ret, struct error *err);

/* Sets the steps from block to block and the number of blocks of the indexed side, which lies at indexed. */
int request_set_steps(const struct msg_blocks *p, const struct transform_spec *spec,
                      const struct tensor_place *indexed, struct engine_blocks *blocks, struct error *err);

#endif
