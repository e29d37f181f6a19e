/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table by address, and a list of those that are idle. */
#include "layouts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void layouts_init(struct layouts *layouts)
{
	*layouts = (struct layouts){ 0 };
	TAILQ_INIT(&layouts->idle);
}

void layouts_deinit(struct layouts *layouts)
{
	layouts_forget(layouts);
	numbers_deinit(&layouts->numbers);
}

static uint32_t bucket_of(const struct transform *transform, const struct plan *plan)
{
	const uint64_t mixed =
	    ((uintptr_t)transform + 3 * (uint64_t)(uintptr_t)plan) * UINT64_C(0x9e3779b97f4a7c15);

	return (uint32_t)(mixed >> 32) % LAYOUTS_BUCKETS;
}

static struct layout *find(struct layouts *layouts, const struct transform *transform,
                           const struct plan *plan)
{
	struct layout *layout;

	LIST_FOREACH(layout, &layouts->bucket[bucket_of(transform, plan)], bucket)
		if (layout->transform == transform && layout->plan == plan)
			return layout;
	return NULL;
}

static bool is_as_sent(const struct layout *layout)
{
	return memcmp(layout->transform, &layout->sent.transform, sizeof *layout->transform) == 0 &&
	       memcmp(layout->plan, &layout->sent.plan, sizeof *layout->plan) == 0;
}

/* As it is now: byte by byte, so that a comparison finds the same. */
static void take(struct layout *layout)
{
	memcpy(&layout->sent.transform, layout->transform, sizeof *layout->transform);
	memcpy(&layout->sent.plan, layout->plan, sizeof *layout->plan);
}

static struct layout *add(struct layouts *layouts, const struct transform *transform, const struct plan *plan)
{
	struct layout *layout = malloc(sizeof *layout);
	uint32_t number;

	if (!layout)
		return NULL;
	if (!numbers_take(&layouts->numbers, &number)) {
		free(layout);
		return NULL;
	}
	layout->transform = transform;
	layout->plan = plan;
	layout->refs = 0;
	layout->sent.head = (struct wire_head){ sizeof layout->sent, WIRE_LAYOUT };
	layout->sent.layout = number;
	take(layout);
	LIST_INSERT_HEAD(&layouts->bucket[bucket_of(transform, plan)], layout, bucket);
	return layout;
}

static void leave_idle(struct layouts *layouts, struct layout *layout)
{
	TAILQ_REMOVE(&layouts->idle, layout, idle);
	layouts->n_idle--;
}

struct layout *layouts_get(struct layouts *layouts, const struct transform *transform,
                           const struct plan *plan, bool *ret_is_new)
{
	struct layout *layout = find(layouts, transform, plan);

	*ret_is_new = !layout;
	if (!layout) {
		layout = add(layouts, transform, plan);
	} else if (layout->refs == 0) {
		*ret_is_new = !is_as_sent(layout);
		if (*ret_is_new)
			take(layout);
		leave_idle(layouts, layout);
	}
	if (layout)
		layout->refs++;
	return layout;
}

uint32_t layouts_number(struct layouts *layouts, const struct transform *transform, const struct plan *plan)
{
	return find(layouts, transform, plan)->sent.layout;
}

static uint32_t drop(struct layouts *layouts, struct layout *layout)
{
	const uint32_t number = layout->sent.layout;

	leave_idle(layouts, layout);
	LIST_REMOVE(layout, bucket);
	numbers_give(&layouts->numbers, number);
	free(layout);
	return number;
}

uint32_t layouts_put(struct layouts *layouts, const struct transform *transform, const struct plan *plan)
{
	struct layout *layout = find(layouts, transform, plan);

	assert(layout && layout->refs > 0);
	if (--layout->refs > 0)
		return WIRE_NONE;
	TAILQ_INSERT_TAIL(&layouts->idle, layout, idle);
	if (++layouts->n_idle <= LAYOUTS_IDLE)
		return WIRE_NONE;
	return drop(layouts, TAILQ_FIRST(&layouts->idle));
}

void layouts_forget(struct layouts *layouts)
{
	for (uint32_t i = 0; i < LAYOUTS_BUCKETS; i++)
		for (struct layout *layout; (layout = LIST_FIRST(&layouts->bucket[i]));) {
			LIST_REMOVE(layout, bucket);
			numbers_give(&layouts->numbers, layout->sent.layout);
			free(layout);
		}
	TAILQ_INIT(&layouts->idle);
	layouts->n_idle = 0;
}
