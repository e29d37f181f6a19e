/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels without a tensor map get their arguments here, by the plan's strategy. */
#ifndef KERNELS_CUDA_LAUNCH_STRIDED_ARGS_H
#define KERNELS_CUDA_LAUNCH_STRIDED_ARGS_H

#include <stdbool.h>

#include "kernels/cuda/device/args.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/transform/transform.h"
#include "launch.h"

/* dst and src: where the plan starts, addresses. */
void strided_args_init(struct strided_args *ret, const struct transform *transform,
                       const struct tma_route_plan *tma, uint64_t dst, uint64_t src);

/* Returns how many of the strategy's slots a block of threads takes at a time. */
uint32_t strided_slots(const struct tma_route_plan *tma, const struct strided_args *args);

/* Returns the shape of the launch of a single move. */
struct shape strided_shape_of(const struct transform *transform, const struct tma_route_plan *tma,
                              const struct strided_args *args);

/* The border, where the plan has one; src and dst as launch_transform takes them. */
void border_args_init(struct fill_args *ret, const struct transform *transform,
                      const struct tma_route_plan *tma, uint64_t dst, uint64_t src);

#endif
