/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU with the seeds' kernels loaded and two areas of its memory: the tensor, and the bytes of tiles. All
 * calls go through the driver's table, so the GPU may be the stand-in. A call that should never fail ends the
 * program if it does. */
#ifndef TESTS_SEEDS_RIG_H
#define TESTS_SEEDS_RIG_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "args.h"
#include "kernels/cuda/strategy/tensor_map.h"

enum seed_kernel {
#define KERNEL(name, args) KERNEL_##name,
#include "seeds.def"
	SEED_KERNEL_COUNT
};

enum {
	RIG_TENSOR_BYTES = 1 << 18, /* including the guards */
	RIG_TILE_BYTES = 1 << 16,
	RIG_GUARD = 4096, /* bytes before the tensor, and as many after it */
};

struct rig_launch {
	enum seed_kernel kernel;
	uint32_t grid[2]; /* blocks; 0 counts as 1 */
	uint32_t threads;
	uint32_t cluster; /* blocks of a cluster; 0: no clusters */
	uint32_t shared_bytes;
	void *args;
};

/* Returns NULL, or why there is no GPU to test. */
const char *rig_open(void);
void rig_close(void);

/* Returns the device's name, for display. */
const char *rig_device_name(void);

/* Return device addresses: of the tensor's first byte, which follows the guard, and of the tiles. */
uint64_t rig_tensor(void);
uint64_t rig_tiles(void);

/* Copy all of RIG_TENSOR_BYTES, guards included, or all of RIG_TILE_BYTES. */
void rig_write_tensor(const uint8_t *bytes);
void rig_read_tensor(uint8_t *ret);
void rig_write_tiles(const uint8_t *bytes);
void rig_read_tiles(uint8_t *ret);

/* Makes a map of a tensor that begins offset bytes after the guard. Returns false if the driver refuses
 * it. */
bool rig_encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t offset);

/* Runs the kernel to its end. Returns false if it failed, after which nothing works in this process. */
bool rig_run(const struct rig_launch *launch);
bool rig_is_lost(void);

/* The exit status of a process whose rig is lost. */
enum { RIG_LOST = 77 };

#endif
