/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU, or what stands in for it: memory for the image, and the kernels. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_GPU_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_GPU_H

#include <cuda.h>
#include <stdint.h>

#include "conformance_args.h"
#include "kernels/cuda/driver/driver.h"

struct gpu {
	struct device device;
	CUmodule module;
	CUfunction load;
	CUfunction store;
	CUfunction cluster;
	CUstream stream;
	CUdeviceptr image; /* aligned to 256 */
	CUdeviceptr tile;
	CUdeviceptr status; /* CONFORMANCE_MOST_BLOCKS of uint32_t */
};

/* image_bytes and tile_bytes: of memory for each. On failure there is nothing to close. */
int gpu_open(struct gpu *ret, uint64_t image_bytes, uint64_t tile_bytes, struct error *err);
void gpu_close(struct gpu *gpu);

int gpu_write(struct gpu *gpu, CUdeviceptr to, const void *from, uint64_t bytes, struct error *err);
int gpu_read(struct gpu *gpu, void *to, CUdeviceptr from, uint64_t bytes, struct error *err);

/* What the driver says of the layout, any at all. */
CUresult gpu_encode(CUtensorMap *map, const struct tensor_map_layout *l, uint64_t address);

/* Runs the kernel to its end, args->bytes and args->status being the gpu's. */
int gpu_run(struct gpu *gpu, CUfunction function, struct conformance_args *args, struct error *err);

/* The same for a cluster; args->global is an offset in the image. */
int gpu_run_cluster(struct gpu *gpu, struct conformance_cluster_args *args, uint32_t blocks,
                    struct error *err);

#endif
