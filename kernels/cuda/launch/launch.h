/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan and two addresses to what the device runs: kernel arguments, tensor maps, launches.
 *
 * A launcher is used by one thread at a time; several of them share a device and its cache of maps. Nothing
 * here allocates: arguments are copied by the driver at the launch.
 */
#ifndef KERNELS_CUDA_LAUNCH_LAUNCH_H
#define KERNELS_CUDA_LAUNCH_LAUNCH_H

#include <stdint.h>

#include "kernels.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/strategy/plan.h"
#include "kernels/transform/transform.h"
#include "map_cache.h"

struct device;

struct launcher {
	const struct device *device;
	struct map_cache *maps; /* The launcher does not own it. */

	/* Set for each job (launcher_set_job) and round. */
	uint32_t multiprocessors; /* that a launch occupies at most; 0: all */
	struct {
		uint64_t start;
		uint64_t bytes; /* 0: none */
	} passing;              /* memory that each launch reads or writes once, to keep out of the L2 */
};

/* For the launches that follow, of one job: within so many multiprocessors, 0: all; nothing is passing. */
static inline void launcher_set_job(struct launcher *launcher, uint32_t multiprocessors)
{
	launcher->multiprocessors = multiprocessors;
	launcher->passing.bytes = 0;
}

/* A launch: which kernel, and how many threads and bytes of shared memory of it. */
struct shape {
	uint32_t kernel; /* enum kernel_id */
	uint64_t blocks; /* at most as many; persistent kernels take what the device can run at once */
	uint32_t threads;
	uint32_t shared;
	uint32_t a_multiprocessor; /* blocks; 0: as many as there are */
};

/* Which of a family's kernels: 1, 2, 4, 8, 16. */
static inline uint32_t by_element(enum kernel_id first, uint32_t element)
{
	return (uint32_t)first + (uint32_t)__builtin_ctz(element);
}

/* How many blocks are launched where a launch may occupy all of the device. */
uint64_t shape_blocks(const struct shape *shape, const struct device *device);

/* args: what the kernel takes; copied. */
int shape_launch(const struct shape *shape, const struct launcher *launcher, CUstream stream, void *args,
                 struct error *err);

struct convert_operands;

/* Puts the whole transform on the stream: one launch, and one more for a border that tiles do not take in.
 * dst and src are addresses of elements [0, ..., 0] that the device can use; their phases are those that the
 * plan was made for. operands: of one that converts; else NULL. */
int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src,
                     const struct convert_operands *operands, struct error *err);

/* Returns whether launches may not occupy all of the device. */
bool launcher_is_bounded(const struct launcher *launcher);

/* ---- For strategies: dst and src are addresses at which the window begins ---------------------------- */

/* Launches the strategy's kernel for a single move, without a map. Returns 0 or an error. */
int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

/* Copies runs with the unit's plain copies. Returns 0 or an error. */
int launch_bulk(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma, uint64_t dst,
                uint64_t src, struct error *err);

struct tile_copy_args;

/* Fills in the arguments of tile_copy, maps included, for a plan by `copy`. Returns 0 or an error. */
int tile_copy_args_init(struct tile_copy_args *ret, struct launcher *launcher,
                        const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err);

#endif
