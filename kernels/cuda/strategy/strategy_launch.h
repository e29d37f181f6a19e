/* SPDX-License-Identifier: Apache-2.0 */
/* Common header of the files that define strategies: the planner's part and, where there is a CUDA engine,
 * the launchers. WITH_CUDA(function) is NULL without a CUDA engine. */
#ifndef KERNELS_CUDA_STRATEGY_STRATEGY_LAUNCH_H
#define KERNELS_CUDA_STRATEGY_STRATEGY_LAUNCH_H

#include "proto/arithmetic.h"
#include "strategy.h"
#include "tuning.h"

#ifdef HAVE_CUDA
#include "kernels/cuda/device/args.h"
#include "kernels/cuda/launch/launch.h"

/* These return the addresses at which the window begins. */
static inline uint64_t strategy_dst(const struct strategy_launch *launch)
{
	return launch->dst + (uint64_t)launch->plan->tma.dst_offset;
}

static inline uint64_t strategy_src(const struct strategy_launch *launch)
{
	return launch->src + (uint64_t)launch->plan->tma.src_offset;
}

/* Launches the strategy's kernel for a single move. */
static inline int strategy_launch_strided(const struct strategy_launch *launch, struct error *err)
{
	return launch_strided(launch->launcher, launch->stream, launch->transform, &launch->plan->tma,
	                      strategy_dst(launch), strategy_src(launch), err);
}

/* Launches the strategy's kernel for many moves with this move alone. */
static inline int strategy_launch_one(const struct strategy_launch *launch, struct error *err)
{
	return launch_one(launch->launcher, launch->stream, launch->transform, &launch->plan->tma,
	                  strategy_dst(launch), strategy_src(launch), err);
}

#define WITH_CUDA(function) function
#else
#define WITH_CUDA(function) NULL
#endif

#endif
