/* SPDX-License-Identifier: Apache-2.0 */
/* All that plans of a transform depend on, as bytes that can be compared, whichever job it comes with. */
#ifndef KERNELS_CPU_TRANSFORM_KEY_H
#define KERNELS_CPU_TRANSFORM_KEY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/plan/transform.h"
#include "move.h"

struct transform_key {
	uint32_t rank, element, mode;
	int forced; /* as move_forced has it */
	int64_t src_shift;
	uint8_t fill[TENSOR_MAX_ELEMENT];
	struct transform_axis axis[TENSOR_MAX_RANK]; /* as many as rank says */
};

static inline size_t transform_key_bytes(const struct transform_key *key)
{
	return offsetof(struct transform_key, axis) + key->rank * sizeof(key->axis[0]);
}

static inline void transform_key_init(struct transform_key *key, const struct transform *t)
{
	key->rank = (uint32_t)t->rank;
	key->element = t->element;
	key->mode = t->mode;
	key->forced = move_forced();
	key->src_shift = t->src_shift;
	memcpy(key->fill, t->fill, sizeof(key->fill));
	memcpy(key->axis, t->axis, (size_t)t->rank * sizeof(t->axis[0]));
}

#endif
