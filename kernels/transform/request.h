/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the fields of a request into what it asks for, a transform or a list of blocks, and checks where its
 * tensors lie. The functions have no side effects; the caller finds the memory that the request names. */
#ifndef KERNELS_TRANSFORM_REQUEST_H
#define KERNELS_TRANSFORM_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "blocks.h"
#include "proto/schema.h"
#include "split.h"
#include "transform.h"

/* ---- Fields ---------------------------------------------------------------------------------------- */

/* Sets the layout of a tensor. name is what errors call it. */
int tensor_layout_of(struct tensor_layout *ret, const struct msg_tensor *tensor, const char *name,
                     struct error *err);

/* Copies a list of integers. Returns its length, or -1 if the list is not present. */
int ints_of(int64_t *ret, const struct int_list *list, bool present);

/* Sets the transform that is asked for, without its splits. Refuses fields that contradict each other, such
 * as more strides than dimensions; transform_init checks the rest. */
int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err);

/* Returns whether dst or src is split. */
bool transform_is_split(const struct msg_transform *params);

/* Divides the transform into the parts that its splits require (split.h), and checks them. A transform
 * without splits has itself as its only part, which transform_init has yet to check. */
int transform_split_of(const struct msg_transform *params, struct split *ret, struct error *err);

/* Returns whether the request has a scale, a bias or an amax. */
bool transform_has_operands(const struct msg_transform *params);

/* Holds all that a request says about one operand of its transform. */
struct request_operand {
	bool is_given;
	bool is_tensor; /* The operand is given, and is not a number. */
	double number;  /* 0 if it is a tensor or not given */
	bool has_region, has_offset;
	uint64_t region, offset;
	const struct int_list *shape; /* of the tensor */
};

struct request_operand request_operand(const struct msg_transform *params, enum operand_role role);

/* Sets *ret to the place that a run of a plan gives for the operand. Returns false if it gives none. */
bool request_run_place(const struct msg_plan_run *run, enum operand_role role, struct region_place *ret);

/* Checks that the run gives a place for an operand if and only if one is wanted, because the operand is a
 * tensor in the plan. */
int request_check_run_place(const struct msg_plan_run *run, enum operand_role role, bool is_wanted,
                            struct error *err);

/* Sets and returns the error of an exact cast that has changed the values of `changed` elements. */
int request_explain_changed(const struct conversion *conversion, uint64_t changed, struct error *err);

/* Refuses a transform whose tensors have a region or an offset: a plan gets its places only when it runs. */
int request_refuse_places(const struct msg_transform *params, struct error *err);

/* ---- Places ---------------------------------------------------------------------------------------- */

/* Places of the tensors of a request. Those that the transform does not have are ignored. */
struct request_places {
	struct tensor_place dst, src;
	struct tensor_place operand[ROLE_COUNT];
};

/* Checks the tensors that the transform has besides dst and src. Each must lie in its region (OUT_OF_RANGE).
 * scale and bias must not share bytes with dst, and the results of amax must not share bytes with dst, src or
 * each other (OVERLAP). sides is NULL for a list of blocks, which has no amax; overlaps of its scale and bias
 * with the destination are then not checked. */
int request_check_operands(const struct request_places *places, const struct transform_sides *sides,
                           const struct conversion *conversion, struct error *err);

/* Checks that the word of a timeline lies in its region and at a multiple of 8 bytes of the memory. name is
 * what errors call it; region is the region's id. */
int request_check_word(const struct tensor_place *place, uint64_t region, const char *name,
                       struct error *err);

/* ---- Further destinations ------------------------------------------------------------------------------ */

/* Maximum number of destinations that a transform may have besides the first. */
#define REQUEST_MOST_FURTHER 64

/* One destination of a transform that has several. All have the same type and shape, and share no bytes. */
struct request_destination {
	struct msg_tensor tensor;
	struct tensor_layout layout;
	struct tensor_extent extent;
	struct tensor_place place;
};

/* Refuses too many further destinations, and further destinations together with amax, whose scales belong to
 * one destination. */
int request_check_further(const struct msg_transform *params, struct error *err);

/* Checks that a further destination has the type and shape of dst, and copies the splits of dst to it. */
int request_take_further(const struct msg_tensor *dst, struct msg_tensor *further, struct error *err);

/* Prefixes the error with the name of further destination i. Returns its status. */
int request_name_further(uint32_t i, struct error *err);

/* Checks that no two of n destinations share bytes (OVERLAP), within the effort that request_check_effort
 * allows. */
int request_check_destinations(const struct request_destination *of, uint32_t n, uint64_t steps_before,
                               struct error *err);

/* Returns QUOTA if the searches for overlaps of one request have taken too many steps. steps_before is the
 * value that overlap_steps returned before the request. */
int request_check_effort(uint64_t steps_before, struct error *err);

/* Returns the transform that copies one destination to another, without splits, which do not matter to a
 * copy. */
struct msg_transform request_copy_between(const struct msg_tensor *dst, const struct msg_tensor *src);

/* ---- Gather and scatter -------------------------------------------------------------------------------- */

/* The fields of a request that say where one side's layers lie. */
struct request_layers {
	const char *side; /* "dst" or "src" */
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

/* request_has_table returns whether a side has its layers in a table, either a prepared one or one that came
 * with the request. request_table_name returns what errors call it. */
static inline bool request_has_table(const struct request_layers *fields)
{
	return fields->has_table || fields->has_places;
}
const char *request_table_name(const struct request_layers *fields);

/* Refuses a side that has a table as well as another field that says where its layers lie. */
int request_check_table(const struct request_layers *fields, struct error *err);

/* Checks the layers of both sides, dst first, and sets *ret to their number. entries has the number of
 * entries of each side's table, 0 for a side without one. */
int request_count_layers(const struct msg_blocks *p, const struct request_layers sides[2],
                         const uint32_t entries[2], uint32_t *ret, struct error *err);

/* Checks that a run of a plan over tables has the fields that it needs and no others. */
int request_check_run_tables(const struct msg_plan_run *p, struct error *err);

/* Refuses a run without tables that lacks dst or src. */
int request_check_run_places(const struct msg_plan_run *p, struct error *err);

/* Checks the fields about entries, and sets their number, whether they are pairs, and the bytes of an index.
 * ret->scatter must have been set. */
int request_check_entries(const struct msg_blocks *p, struct engine_blocks *ret, struct error *err);

/* request_copy_lists copies the lists of the message, which need not be aligned, into words, and lets blocks
 * point to the copies. words must have space for request_list_bytes bytes. If dst has a list of layers,
 * request_copy_lists returns a free part of words that has space for as many offsets as dst has layers;
 * otherwise it returns NULL. */
size_t request_list_bytes(const struct msg_blocks *p);
int64_t *request_copy_lists(const struct msg_blocks *p, int64_t *words, struct engine_blocks *blocks);

/* request_block returns the transform that moves one block. request_block_spec sets the spec of that
 * transform after its splits have been applied, or returns UNSUPPORTED if a split's last block is
 * incomplete. */
struct msg_transform request_block(const struct msg_blocks *p);
int request_block_spec(const struct msg_transform *block, struct transform_spec *ret, struct error *err);

/* Refuses an indexed side for which neither the request gives a limit nor a region's end implies one
 * (dst_has_end, src_has_end). */
int request_check_ends(const struct msg_blocks *p, const struct engine_blocks *blocks, bool dst_has_end,
                       bool src_has_end, struct error *err);

/* Sets the steps from block to block, and the limits of indexed sides. */
int request_set_steps(const struct msg_blocks *p, const struct transform_spec *spec,
                      const struct tensor_place *dst_place, const struct tensor_place *src_place,
                      struct engine_blocks *blocks, struct error *err);

#endif
