/* SPDX-License-Identifier: Apache-2.0 */
/* A launch gets its number of blocks and its attributes here, and a transform is launched by its plan's
 * strategy. */
#include "launch.h"

#include <assert.h>

#include "kernels/cuda/device/args.h"
#include "kernels/cuda/driver/device.h"
#include "kernels/cuda/strategy/strategy.h"
#include "kernels/cuda/strategy/tuning.h"
#include "strided_args.h"

/* A multiprocessor of compute capability 9.0 and later has 228 KiB of shared memory, of which each block
 * takes 1 KiB. The kernels assert their side of these sizes. */
#define SHARED_BYTES       (228 * 1024)
#define SHARED_BYTES_OWN   1024
#define CHECK_SHARED(n, b) static_assert((n) * ((b) + SHARED_BYTES_OWN) <= SHARED_BYTES, "as many blocks fit")

#define TRANSPOSE_SHARED \
	(RING_BYTES(TRANSPOSE_STAGES, TRANSPOSE_TILE_BYTES) + TRANSPOSE_STAGES * TRANSPOSE_NOTE_BYTES)

CHECK_SHARED(TRANSPOSE_BLOCKS, TRANSPOSE_SHARED);
CHECK_SHARED(COPY_BLOCKS, RING_BYTES(COPY_STAGES, COPY_TILE_BYTES) + COPY_STAGES * PAD_NOTE_BYTES);
static_assert(TRANSPOSE_NOTE_BYTES % 8 == 0 && PAD_NOTE_BYTES % 8 == 0, "notes lie behind barriers, aligned");

/* ---- Shapes ------------------------------------------------------------------------------------------- */

uint64_t shape_blocks(const struct shape *shape, const struct device *device)
{
	const uint64_t most =
	    shape->a_multiprocessor ? (uint64_t)shape->a_multiprocessor * device->processors : INT32_MAX;

	return shape->blocks < most ? shape->blocks : most;
}

bool launcher_is_bounded(const struct launcher *launcher)
{
	return launcher->multiprocessors > 0 && launcher->multiprocessors < launcher->device->processors;
}

/* Returns how many blocks one multiprocessor holds at once, for a launch that may not occupy all of them. */
static uint64_t resident_blocks(const struct shape *shape, const struct launcher *launcher)
{
	int n = 0;

	if (shape->a_multiprocessor)
		return shape->a_multiprocessor;
	driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, launcher->device->function[shape->kernel],
	                                                   (int)shape->threads, shape->shared);
	return n <= 0 ? 1 : n < BOUNDED_BLOCKS ? (uint64_t)n : BOUNDED_BLOCKS;
}

/* Returns how many blocks fit in what the launch may occupy; each of them takes several tiles. */
static uint64_t bounded_blocks(const struct shape *shape, const struct launcher *launcher)
{
	const uint64_t blocks = shape_blocks(shape, launcher->device);
	const uint64_t most = launcher->multiprocessors * resident_blocks(shape, launcher);

	return blocks < most ? blocks : most;
}

/* A kernel may start while the one before it on the stream ends, which is safe because each waits before it
 * touches global memory (device/tma.cuh). The attribute matters only between two kernels: a copy, an event
 * or a signal between them waits for all of the first, and the second for that. */
static CUlaunchAttribute start_early(void)
{
	return (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		                    .value.programmaticStreamSerializationAllowed = 1 };
}

/* Reads and writes of what is passing are the first to leave the L2 again. A window may not be as large as
 * the most that the device names: one of all that has no effect (tests/bench/EXPERIMENTS.md). */
static CUlaunchAttribute let_pass(const struct launcher *launcher)
{
	const uint64_t most = launcher->device->window_bytes / 2, bytes = launcher->passing.bytes;

	return (CUlaunchAttribute){
		.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
		.value.accessPolicyWindow = { .base_ptr = (void *)launcher->passing.start,
		                              .num_bytes = bytes < most ? bytes : most,
		                              .hitRatio = 1,
		                              .hitProp = CU_ACCESS_PROPERTY_STREAMING,
		                              .missProp = CU_ACCESS_PROPERTY_NORMAL },
	};
}

int shape_launch(const struct shape *shape, const struct launcher *launcher, CUstream stream, void *args,
                 struct error *err)
{
	const bool has_passing = launcher->passing.bytes > 0 && launcher->device->window_bytes > 0;
	CUlaunchAttribute attributes[] = { start_early(), let_pass(launcher) };

	const uint64_t blocks = launcher_is_bounded(launcher) ? bounded_blocks(shape, launcher)
	                                                      : shape_blocks(shape, launcher->device);
	CUlaunchConfig config = {
		.gridDimX = (unsigned)blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = shape->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shape->shared,
		.hStream = stream,
		.attrs = attributes,
		.numAttrs = has_passing ? 2 : 1,
	};
	void *params[] = { args };

	return driver_call(err, cuLaunchKernelEx,
	                   (&config, launcher->device->function[shape->kernel], params, NULL));
}

/* ---- Transforms ---------------------------------------------------------------------------------------- */

int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                   const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct strided_args args;

	strided_args_init(&args, transform, tma, dst, src);
	const struct shape shape = strided_shape_of(transform, tma, &args);
	return shape_launch(&shape, launcher, stream, &args, err);
}

static int launch_border(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct fill_args args;

	border_args_init(&args, transform, tma, dst, src);
	return shape_launch(&(struct shape){ .kernel = by_element(KERNEL_fill_1, tma->border_element),
	                                     .blocks = tma->border_tiles,
	                                     .threads = ROWS_THREADS },
	                    launcher, stream, &args, err);
}

int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src,
                     const struct convert_operands *operands, struct error *err)
{
	const struct strategy_launch launch = { launcher, stream, transform, plan, dst, src, operands };
	int r = strategy_of(plan)->launch(&launch, err);

	if (r == 0 && plan->tma.border_rank > 0)
		r = launch_border(launcher, stream, transform, &plan->tma, dst, src, err);
	return r;
}
