/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the stand-in driver and the software model, which runs kernels compiled for the host
 * and keeps a tensor map's layout in its 128 opaque bytes. */
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
	uint32_t cluster;      /* blocks along x that form a cluster; 1: no cluster */
	uint32_t shared_bytes; /* bytes of dynamic shared memory */
	/* May start before the previous grid has ended; its threads then call grid_wait. */
	bool programmatic;
	void **params; /* as in cuLaunchKernelEx */
};

/* Returns NULL if no such kernel was compiled in. */
const struct model_kernel *model_find(const char *name);

const char *model_name(const struct model_kernel *kernel);

/* Returns the size of the kernel's only parameter, which the driver copies at the launch. */
size_t model_args_size(const struct model_kernel *kernel);

/* Returns the kernel's launch bound: most threads of a block. */
uint32_t model_launch_bound(const struct model_kernel *kernel);

/* Runs the kernel to its end on the calling thread. Returns false if it broke a rule of the unit or never
 * ended; report then gets a sentence that says which rule, where and with what values. */
bool model_run(const struct model_kernel *kernel, const struct model_launch *launch, char *report,
               size_t size);

/* Set by the driver, which knows what memory there is: returns whether the kernel may read or write these
 * bytes. NULL: not checked. Called on the thread that runs the kernel. */
extern bool (*model_memory_check)(uint64_t address, uint64_t bytes, bool write);

/* The counts that launches add to; NULL: nothing is counted. Must not change while a kernel runs. */
extern struct softgpu_counts *model_counts;

/* Returns the number of sectors that hold these bytes. */
uint64_t model_sectors(uint64_t address, uint64_t bytes);

/* Encodes a layout, which must have passed tensor_map_check. */
void model_map_encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t address);

/* Returns false if the 128 bytes are no map made by model_map_encode. */
bool model_map_decode(const CUtensorMap *map, struct tensor_map_layout *ret, uint64_t *ret_address);

#ifdef __cplusplus
}
#endif

#endif
