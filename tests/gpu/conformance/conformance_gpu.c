/* SPDX-License-Identifier: Apache-2.0 */
/* Uses one stream and one launch at a time: every function returns when the device has finished. */
#include "conformance_gpu.h"

#include "kernels/cuda/driver/driver.h"

extern const unsigned char conformance_image[];

static int open_kernel(struct gpu *gpu, CUfunction *ret, const char *name, struct error *err)
{
	int r = driver_call(err, cuModuleGetFunction, (ret, gpu->module, name));

	return r < 0 ? r
	             : driver_call(err, cuFuncSetAttribute,
	                           (*ret, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
	                            (int)gpu->device.shared_bytes));
}

int gpu_open(struct gpu *ret, uint64_t image_bytes, uint64_t tile_bytes, struct error *err)
{
	int r;

	*ret = (struct gpu){ 0 };
	r = device_open(&ret->device, NULL, err);
	if (r < 0)
		return r;
	r = driver_call(err, cuModuleLoadData, (&ret->module, conformance_image));
	if (r == 0)
		r = open_kernel(ret, &ret->load, "conformance_load", err);
	if (r == 0)
		r = open_kernel(ret, &ret->store, "conformance_store", err);
	if (r == 0)
		r = open_kernel(ret, &ret->cluster, "conformance_cluster", err);
	if (r == 0)
		r = driver_call(err, cuStreamCreateWithPriority, (&ret->stream, CU_STREAM_NON_BLOCKING, 0));
	if (r == 0)
		r = driver_call(err, cuMemAlloc, (&ret->image, image_bytes));
	if (r == 0)
		r = driver_call(err, cuMemAlloc, (&ret->tile, tile_bytes));
	if (r == 0)
		r = driver_call(err, cuMemAlloc, (&ret->status, CONFORMANCE_MOST_BLOCKS * sizeof(uint32_t)));
	if (r < 0)
		gpu_close(ret);
	return r;
}

void gpu_close(struct gpu *gpu)
{
	if (gpu->status)
		driver.cuMemFree(gpu->status);
	if (gpu->tile)
		driver.cuMemFree(gpu->tile);
	if (gpu->image)
		driver.cuMemFree(gpu->image);
	if (gpu->stream)
		driver.cuStreamDestroy(gpu->stream);
	if (gpu->module)
		driver.cuModuleUnload(gpu->module);
	device_close(&gpu->device);
}

static int settle(struct gpu *gpu, int r, struct error *err)
{
	return r < 0 ? r : driver_call(err, cuStreamSynchronize, (gpu->stream));
}

int gpu_write(struct gpu *gpu, CUdeviceptr to, const void *from, uint64_t bytes, struct error *err)
{
	return settle(gpu, driver_call(err, cuMemcpyHtoDAsync, (to, from, bytes, gpu->stream)), err);
}

int gpu_read(struct gpu *gpu, void *to, CUdeviceptr from, uint64_t bytes, struct error *err)
{
	return settle(gpu, driver_call(err, cuMemcpyDtoHAsync, (to, from, bytes, gpu->stream)), err);
}

/* cluster is the number of blocks of the cluster and of the grid; 1: no cluster. */
static int launch(struct gpu *gpu, CUfunction function, void *args, uint32_t cluster, uint32_t copied,
                  struct error *err)
{
	CUlaunchAttribute attribute = {
		.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
		.value.clusterDim = { cluster, 1, 1 },
	};
	CUlaunchConfig config = {
		.gridDimX = cluster,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = CONFORMANCE_THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = copied + CONFORMANCE_BARRIER,
		.hStream = gpu->stream,
		.attrs = &attribute,
		.numAttrs = cluster > 1 ? 1 : 0,
	};
	void *params[] = { args };

	return settle(gpu, driver_call(err, cuLaunchKernelEx, (&config, function, params, NULL)), err);
}

int gpu_run(struct gpu *gpu, CUfunction function, struct conformance_args *args, struct error *err)
{
	args->bytes = gpu->tile;
	args->status = gpu->status;
	return launch(gpu, function, args, 1, args->copied, err);
}

int gpu_run_cluster(struct gpu *gpu, struct conformance_cluster_args *args, uint32_t blocks,
                    struct error *err)
{
	struct conformance_cluster_args placed = *args;

	placed.tile.bytes = gpu->tile;
	placed.tile.status = gpu->status;
	placed.global += gpu->image;
	return launch(gpu, gpu->cluster, &placed, blocks, placed.tile.copied, err);
}

CUresult gpu_encode(CUtensorMap *map, const struct tensor_map_layout *l, uint64_t address)
{
	return driver.cuTensorMapEncodeTiled(
	    map, (CUtensorMapDataType)l->type, l->rank, (void *)address, l->dim, l->stride, l->box,
	    l->element_stride, (CUtensorMapInterleave)l->interleave, (CUtensorMapSwizzle)l->swizzle,
	    (CUtensorMapL2promotion)l->l2, (CUtensorMapFloatOOBfill)l->fill);
}
