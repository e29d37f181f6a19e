/* SPDX-License-Identifier: Apache-2.0 */
/* The slices of a reshard, checked: each lies in its region and in the global tensor, and what is written
 * shares no byte with anything else. */
#ifndef KERNELS_TRANSFORM_SLICES_H
#define KERNELS_TRANSFORM_SLICES_H

#include <stdint.h>

#include "cover.h"
#include "proto/schema.h"
#include "transform.h"

/* Where one lies in memory. */
struct slice {
	struct tensor_place place;
	struct tensor_layout layout;
	struct tensor_extent extent;
};

/* Destinations first, then sources: of each its memory and its box in the global tensor. */
struct slices {
	uint32_t n_destinations;
	uint32_t n;          /* of both */
	struct slice *slice; /* room for n of them, which the caller owns, */
	struct box *box;     /* and for as many boxes */
	int rank;
	uint64_t steps; /* that searches for overlaps had taken before the request */
};

/* Begins with slices that have no contents. The caller then sets each of them in order: slices_set, and
 * slices_set_place once it has found the memory; and it calls slices_check at the end. */
struct slices slices_begin(uint32_t n_destinations, uint32_t n_sources, struct slice *slice, struct box *box);

/* Sets layout and box of slice i. shape is that of the global tensor, or NULL if that is not known. */
int slices_set(struct slices *slices, uint32_t i, const struct msg_slice *params,
               const struct int_list *shape, struct error *err);

/* Sets where slice i lies: it must be in its region, and no two elements of a destination may share a byte.
 */
int slices_set_place(struct slices *slices, uint32_t i, const struct tensor_place *place, struct error *err);

/* Checks that what is written shares no byte with anything else. OVERLAP, or QUOTA if that takes too long to
 * find out. */
int slices_check(struct slices *slices, struct error *err);

#define SLICE_NAME_SIZE 32

/* "destinations[3]" */
char *slice_name(const struct slices *slices, uint32_t i, char text[SLICE_NAME_SIZE]);

/* "destinations[3].tensor.region" */
#define SLICE_FIELD_SIZE (SLICE_NAME_SIZE + 16)
char *slice_region_name(const struct slices *slices, uint32_t i, char text[SLICE_FIELD_SIZE]);

#endif
