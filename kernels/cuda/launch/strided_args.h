/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels without a tensor map are called with, by the plan's route. */
#ifndef KERNELS_CUDA_LAUNCH_STRIDED_ARGS_H
#define KERNELS_CUDA_LAUNCH_STRIDED_ARGS_H

#include <stdbool.h>

#include "kernels/cuda/device/args.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/transform.h"
#include "launch.h"

/* Whether the plan's route is one of those. */
static inline bool is_strided(const struct tma_route_plan *tma)
{
	return tma->route >= TMA_ROUTE_ROWS && tma->route < TMA_ROUTE_PERMUTE;
}

/* dst and src: where the plan starts, addresses. */
void strided_args_init(struct strided_args *ret, const struct transform *transform,
                       const struct tma_route_plan *tma, uint64_t dst, uint64_t src);

/* Slots of the route's that a block of threads takes at a time. */
uint32_t strided_slots(const struct tma_route_plan *tma, const struct strided_args *args);

/* The launch of one move of ROWS, GATHER or CHANNELS. */
struct shape strided_shape_of(const struct transform *transform, const struct tma_route_plan *tma,
                              const struct strided_args *args);

/* The border, where the plan has one; src and dst as launch_transform takes them. */
void border_args_init(struct fill_args *ret, const struct transform *transform,
                      const struct tma_route_plan *tma, uint64_t dst, uint64_t src);

#endif
