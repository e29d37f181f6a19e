/* SPDX-License-Identifier: Apache-2.0 */
/* The slices of a reshard, checked: each lies in its region and in the global tensor, and what is written
 * shares no byte with anything else. */
#ifndef DAEMON_METHOD_SLICES_H
#define DAEMON_METHOD_SLICES_H

#include <stdint.h>

#include "kernels/transform/cover.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "proto/tensor.h"

struct region;
struct session;

/* Where one lies in memory. */
struct slice {
	struct region *region;
	uint64_t offset; /* bytes of element [0, ..., 0] in it */
	struct tensor_layout layout;
	struct tensor_extent extent;
};

/* Destinations first, then sources: of each its memory and its box in the global tensor. */
struct slices {
	int rank;
	uint32_t n_destinations;
	uint32_t n; /* of both */
	struct slice *slice;
	struct box *box;
};

/* Checks all slices of a request; the caller frees *ret. Regions are held by nobody yet. */
int slices_of(struct session *session, const struct msg_reshard *params, struct slices *ret,
              struct error *err);

/* Zeros are allowed. */
void slices_free(struct slices *slices);

#define SLICE_NAME_SIZE 32

/* "destinations[3]" */
char *slice_name(const struct slices *slices, uint32_t i, char text[SLICE_NAME_SIZE]);

#endif
