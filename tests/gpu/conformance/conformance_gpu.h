/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU or its stand-in: memory for the image, and the kernels. */
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
	CUdeviceptr image; /* aligned to 256 bytes */
	CUdeviceptr tile;
	CUdeviceptr status; /* CONFORMANCE_MOST_BLOCKS values of type uint32_t */
};

/* image_bytes and tile_bytes are the sizes of the two memories. If it fails, there is nothing to close. */
int gpu_open(struct gpu *ret, uint64_t image_bytes, uint64_t tile_bytes, struct error *err);
void gpu_close(struct gpu *gpu);

int gpu_write(struct gpu *gpu, CUdeviceptr to, const void *from, uint64_t bytes, struct error *err);
int gpu_read(struct gpu *gpu, void *to, CUdeviceptr from, uint64_t bytes, struct error *err);

/* Returns the driver's result for the layout, which may be illegal. */
CUresult gpu_encode(CUtensorMap *map, const struct tensor_map_layout *l, uint64_t address);

/* Runs the kernel to its end, with args->bytes and args->status set to the gpu's memory. */
int gpu_run(struct gpu *gpu, CUfunction function, struct conformance_args *args, struct error *err);

/* Does the same for a cluster. args->global is an offset in the image. */
int gpu_run_cluster(struct gpu *gpu, struct conformance_cluster_args *args, uint32_t blocks,
                    struct error *err);

#endif
