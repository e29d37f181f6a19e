/* SPDX-License-Identifier: Apache-2.0 */
/* Places in memories that have allocations in common (aliases.h): whether what lies there shares bytes. */
#ifndef KERNELS_TRANSFORM_LAYER_ALIASES_H
#define KERNELS_TRANSFORM_LAYER_ALIASES_H

#include <stdbool.h>
#include <stdint.h>

#include "stretch.h"
#include "transform.h"

struct layer_table;

/* Whether stretches of the memories of two places share a byte, as far as the engine knows. */
bool places_meet(const struct tensor_place *a, struct stretch of_a, const struct tensor_place *b,
                 struct stretch of_b);

/* What is compared: a stretch at each entry of a table, or one of a place's memory. */
struct layer_side {
	const struct layer_table *table; /* NULL: the place */
	const struct tensor_place *place;
	struct stretch stretch; /* from an entry on; of the place's memory */
};

enum layer_sharing {
	LAYERS_APART,
	LAYERS_FAR,     /* so are all bytes from the first region in each memory to the last one's end */
	LAYERS_SHARE,   /* bytes */
	LAYERS_UNKNOWN, /* comparing them would take too long */
};

static inline bool layers_are_apart(enum layer_sharing sharing)
{
	return sharing == LAYERS_APART || sharing == LAYERS_FAR;
}

/* Steps of one comparison at most, as overlap_steps counts them: two milliseconds or so. */
#define LAYERS_MOST_STEPS 98304

/* Whether a stretch of a shares a byte with one of b in another memory, and which entries these are. b may be
 * a: then with another one of its own. Stretches lie within the regions. It takes steps (overlap_steps). */
enum layer_sharing layers_share(const struct layer_side *a, const struct layer_side *b, uint32_t *ret_a,
                                uint32_t *ret_b);

#endif
