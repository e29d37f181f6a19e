/* SPDX-License-Identifier: Apache-2.0 */
/* A tile's slots, spaced in one way or another, and the chunks that lanes go through: what permute_layout.c
 * (where everything lies) and permute_banks.c (the search for a spacing) share. Internal to these two.
 */
#ifndef KERNELS_CUDA_STRATEGY_PERMUTE_SLOTS_H
#define KERNELS_CUDA_STRATEGY_PERMUTE_SLOTS_H

#include "permute_plan.h"

/* How slots are kept out of each other's banks: as the fields of permute_args with these names. */
struct spacing {
	uint32_t pitch;
	uint32_t pad_shift;
	uint32_t skew;
	uint32_t phase_mask;
};

static inline struct spacing spacing_of(const struct permute_args *args)
{
	return (struct spacing){ args->pitch, args->pad_shift, args->skew, args->phase_mask };
}

static inline uint32_t round_up(uint32_t n, uint32_t to)
{
	return (n + to - 1) / to * to;
}

static inline uint32_t slot_of(const struct permute_args *args, const struct spacing *spacing, uint32_t load)
{
	return load * spacing->pitch + (load >> spacing->pad_shift) * args->pad;
}

static inline uint32_t skewed(uint32_t at, uint32_t skew)
{
	return at + (at >> skew) * 16;
}

/* From one index of the stack to the next. */
static inline uint32_t stack_pitch_of(const struct permute_args *args, const struct spacing *spacing)
{
	return round_up(slot_of(args, spacing, (uint32_t)args->by_loads.n), spacing->phase_mask + 1);
}

/* WORDS: the places of entries are sums of 16 bits each, two at once. A last part that is shorter than the
 * others is read as if it were as long, past the slots by so many bytes. */
static inline uint32_t past_slots(const struct permute_args *args)
{
	const int64_t step = args->run[args->n_run - 1].src;

	if (args->how != PERMUTE_WORDS || args->cut == 0 || step < 0)
		return 0;
	return ((uint32_t)args->row[args->cut_row].by.n * args->cut - args->last_n) * (uint32_t)step;
}

/* Before the skew. */
static inline uint32_t slot_bytes(const struct permute_args *args, const struct spacing *spacing)
{
	return args->slot_lead + past_slots(args) +
	       args->loads / (uint32_t)args->by_loads.n * stack_pitch_of(args, spacing) +
	       (spacing->phase_mask & ~15u);
}

static inline uint32_t parts_of(const struct spacing *spacing)
{
	return spacing->skew == PERMUTE_NO_SKEW ? 1 : (spacing->pitch >> spacing->skew) + 2;
}

/* by_inner_chunks of permute_args where 1 << side groups lie side by side in a warp. */
uint32_t permute_inner_chunks(const struct permute_args *args, uint32_t side);

#endif
