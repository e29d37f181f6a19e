/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU with the seeds' kernels on it, and two pieces of its memory: the tensor, and the bytes of tiles.
 * Everything goes through the driver's table, so that the GPU may be the stand-in. What should never fail
 * ends the program.
 */
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
	RIG_TENSOR_BYTES = 1 << 18, /* with the guards */
	RIG_TILE_BYTES = 1 << 16,
	RIG_GUARD = 4096, /* bytes before the tensor, and after it */
};

struct rig_launch {
	enum seed_kernel kernel;
	uint32_t grid[2]; /* 0: 1 */
	uint32_t threads;
	uint32_t cluster; /* 0: none */
	uint32_t shared_bytes;
	void *args;
};

/* NULL, or why there is no GPU to test. */
const char *rig_open(void);
void rig_close(void);

/* The name, for people. */
const char *rig_device_name(void);

/* Device addresses: of the tensor's first byte, behind the guard; of the tiles'. */
uint64_t rig_tensor(void);
uint64_t rig_tiles(void);

/* All of RIG_TENSOR_BYTES, guards and all; all of RIG_TILE_BYTES. */
void rig_write_tensor(const uint8_t *bytes);
void rig_read_tensor(uint8_t *ret);
void rig_write_tiles(const uint8_t *bytes);
void rig_read_tiles(uint8_t *ret);

/* A map of the tensor that lies offset bytes behind the guard. false: the driver refuses it. */
bool rig_encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t offset);

/* Runs it to its end. false: it failed; nothing works in this process after that. */
bool rig_run(const struct rig_launch *launch);
bool rig_is_lost(void);

/* What a process exits with whose rig is lost. */
enum { RIG_LOST = 77 };

#endif
