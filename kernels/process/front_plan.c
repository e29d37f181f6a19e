/* SPDX-License-Identifier: Apache-2.0 */
/* The front's part of a plan is the number by which the child knows it. The front itself plans nothing. */
#include <stdlib.h>

#include "front.h"

/* The child has to forget this once the plan is gone. A plan may be freed on any thread, but only the owner's
 * thread writes to the child. */
struct front_layout {
	uint32_t number;
	uint64_t life; /* life of the child that has it; 0: none has it */
	SLIST_ENTRY(front_layout) entry;
};

struct own {
	struct front_layout *layout; /* NULL: no child ever had it */
};

static void deinit(struct engine_plan *plan)
{
	struct front *front = plan->cache->arg;
	struct own *own = plan->own;

	if (!own->layout)
		return;
	pthread_mutex_lock(&front->lock);
	SLIST_INSERT_HEAD(&front->forgotten, own->layout, entry);
	pthread_mutex_unlock(&front->lock);
}

const struct plan_cache_ops front_plan_ops = { .own_bytes = sizeof(struct own), .deinit = deinit };

static struct front_layout *take_forgotten(struct front *front)
{
	struct front_layout *layout;

	pthread_mutex_lock(&front->lock);
	layout = SLIST_FIRST(&front->forgotten);
	if (layout)
		SLIST_REMOVE_HEAD(&front->forgotten, entry);
	pthread_mutex_unlock(&front->lock);
	return layout;
}

void front_forget_plans(struct front *front)
{
	struct front_layout *layout;

	while ((layout = take_forgotten(front))) {
		if (front->own && layout->life == front->own->life)
			front_send_number(front, WIRE_FORGET_LAYOUT, layout->number, 0);
		numbers_give(&front->layout_numbers, layout->number);
		free(layout);
	}
}

static struct front_layout *new_layout(struct front *front)
{
	struct front_layout *layout = calloc(1, sizeof *layout);

	if (layout && numbers_take(&front->layout_numbers, &layout->number))
		return layout;
	free(layout);
	return NULL;
}

static struct wire_layout wire_of(const struct engine_plan *plan, uint32_t number)
{
	return (struct wire_layout){ .head = { sizeof(struct wire_layout), WIRE_LAYOUT },
		                     .layout = number,
		                     .places = plan->places,
		                     .transform = plan->transform };
}

int front_plan_send(struct front *front, const struct engine_plan *plan, uint32_t *ret)
{
	struct own *own = plan->own;
	struct wire_layout wire;

	if (!own->layout)
		own->layout = new_layout(front);
	if (!own->layout)
		return STATUS_NO_MEMORY;
	*ret = own->layout->number;
	if (own->layout->life == front->own->life)
		return 0;
	wire = wire_of(plan, *ret);
	if (buffer_append(&front->out, &wire, sizeof wire) < 0)
		return STATUS_NO_MEMORY;
	own->layout->life = front->own->life;
	return 0;
}

uint32_t front_plan_number(const struct engine_plan *plan)
{
	const struct own *own = plan->own;

	return own->layout->number;
}

/* This blocks the caller's thread, as mapping does. The child makes a plan of its own for it. */
int front_explain(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
                  struct error *err)
{
	const struct wire_layout layout = wire_of(plan, WIRE_NONE);
	struct child_call call = {
		.call = { .kind = WIRE_EXPLAIN }, .fd = -1, .layout = &layout, .explanation = ret
	};
	struct child *child = front_child(front_of(engine), err);
	struct wire_answer answer;
	int fd, r;

	if (!child)
		return err->status;
	r = child_do(child, &call, &answer, &fd, err);
	child_unref(child);
	return r;
}

/* ---- Counts ------------------------------------------------------------------------------------------- */

static void add(struct engine_cache_stats *ret, const struct shared_stats *stats)
{
	ret->hits += atomic_load(&stats->hits);
	ret->misses += atomic_load(&stats->misses);
	ret->evictions += atomic_load(&stats->evictions);
}

void front_keep_stats(struct front *front)
{
	add(&front->before, &front->own->shared->maps);
	add(&front->plans_before, &front->own->shared->plans);
}

void front_cache_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	struct front *front = front_of(engine);

	*ret = front->before;
	if (!front->own)
		return;
	add(ret, &front->own->shared->maps);
	ret->entries = atomic_load(&front->own->shared->maps.entries);
}

void front_add_plan_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	struct front *front = front_of(engine);

	ret->hits += front->plans_before.hits;
	ret->misses += front->plans_before.misses;
	ret->evictions += front->plans_before.evictions;
	if (!front->own)
		return;
	add(ret, &front->own->shared->plans);
	ret->entries += atomic_load(&front->own->shared->plans.entries);
}

void front_tell_plans(const struct front *front, struct child *child)
{
	atomic_store(&child->shared->keep_plans, front->hello.plans);
	atomic_store(&child->shared->tunes, front->hello.tunes);
}

void front_keep_plans(struct engine *engine, uint64_t n)
{
	struct front *front = front_of(engine);

	pthread_mutex_lock(&front->lock);
	front->hello.plans = n;
	if (front->child)
		front_tell_plans(front, front->child);
	pthread_mutex_unlock(&front->lock);
}

void front_tune(struct engine *engine, bool tunes)
{
	struct front *front = front_of(engine);

	pthread_mutex_lock(&front->lock);
	front->hello.tunes = tunes;
	if (front->child)
		front_tell_plans(front, front->child);
	pthread_mutex_unlock(&front->lock);
}
