/* SPDX-License-Identifier: Apache-2.0 */
/* What the stand-in driver asks of the software model: run a kernel that was compiled for the host, and keep
 * a tensor map's layout in the 128 bytes that are opaque to everyone else.
 */
#ifndef TESTS_SOFTGPU_MODEL_H
#define TESTS_SOFTGPU_MODEL_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"
#include "tests/softgpu/counts.h"

#ifdef __cplusplus
extern "C" {
#endif

struct model_kernel;

struct model_launch {
	uint32_t grid[3];
	uint32_t block[3];
	uint32_t cluster;      /* blocks along x that share a cluster; 1 */
	uint32_t shared_bytes; /* dynamic */
	bool programmatic;     /* may start while the one before it runs: its threads wait (grid_wait) */
	void **params;         /* as cuLaunchKernelEx takes them */
};

/* NULL when no such kernel was compiled in. */
const struct model_kernel *model_find(const char *name);

const char *model_name(const struct model_kernel *kernel);

/* Bytes of the kernel's only parameter: the driver has to copy it at the launch. */
size_t model_args_size(const struct model_kernel *kernel);

/* Threads of a block that it was compiled for, at most. */
uint32_t model_launch_bound(const struct model_kernel *kernel);

/* Runs it to its end on the calling thread. false: it broke a rule of the unit (or never ended), and report
 * is one sentence that says which, where and with what values. */
bool model_run(const struct model_kernel *kernel, const struct model_launch *launch, char *report,
               size_t size);

/* Whether the kernel may read or write these bytes: set by the driver, which knows what memory there is.
 * NULL: not asked. Called on the thread that runs the kernel. */
extern bool (*model_memory_check)(uint64_t address, uint64_t bytes, bool write);

/* What launches add to; NULL: they are not counted. Not to be changed while one runs. */
extern struct softgpu_counts *model_counts;

/* Sectors that hold those bytes. */
uint64_t model_sectors(uint64_t address, uint64_t bytes);

/* The layout must have passed tensor_map_check. */
void model_map_encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t address);

/* false: the 128 bytes are no map that model_map_encode made. */
bool model_map_decode(const CUtensorMap *map, struct tensor_map_layout *ret, uint64_t *ret_address);

#ifdef __cplusplus
}
#endif

#endif
