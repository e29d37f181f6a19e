/* SPDX-License-Identifier: Apache-2.0 */
#include "plans.h"

#include <stdlib.h>

#include "kernels/plan_cache.h"

static _Thread_local struct engine_plan **kept;
static _Thread_local size_t n_kept, room;

static struct engine_plan *keep(struct engine_plan *plan)
{
	if (n_kept == room) {
		room = room ? 2 * room : 64;
		kept = realloc(kept, room * sizeof(struct engine_plan *));
	}
	if (!plan || !kept)
		abort();
	return kept[n_kept++] = plan;
}

struct engine_plan *plan_for(struct engine *engine, const struct transform *transform, uint64_t dst,
                             uint64_t src)
{
	return keep(plan_cache_make(engine->plans, transform, engine_places(engine, plan_places(dst, src))));
}

struct engine_plan *plan_for_list(struct engine *engine, const struct transform *transform,
                                  const struct engine_blocks *blocks, uint64_t dst, uint64_t src)
{
	const struct plan_places places = plan_places_of_many(blocks_bits(blocks, dst, src));

	return keep(plan_cache_make(engine->plans, transform, engine_places(engine, places)));
}

void plans_drop(void)
{
	while (n_kept > 0)
		engine_plan_unref(kept[--n_kept]);
	free(kept);
	kept = NULL;
	room = 0;
}
