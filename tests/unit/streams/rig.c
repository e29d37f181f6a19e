/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the device as a program does before it makes a client. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

tma_client *client;
CUcontext context;
CUstream stream;

void rig_open(void)
{
	cuda(cuInit(0));
	cuda(cuDevicePrimaryCtxRetain(&context, 0));
	cuda(cuCtxSetCurrent(context));
	cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	client = tma_new();
	/* The program has the engine linked in, and no library is loaded. */
	cr_assert_not_null(tma_local_door());
	cr_assert_eq(tma_connect(client, "local:"), 0, "%s", tma_last_error(client));
}

void rig_close(void)
{
	tma_free(client);
	cuda(cuStreamDestroy(stream));
}

CUdeviceptr rig_numbers(size_t count)
{
	uint32_t *numbers = malloc(count * sizeof *numbers);
	CUdeviceptr ret = rig_bytes(count * sizeof *numbers, 0);

	cr_assert_not_null(numbers);
	for (size_t i = 0; i < count; i++)
		numbers[i] = (uint32_t)i * 2654435761u;
	rig_put(ret, numbers, count * sizeof *numbers);
	free(numbers);
	return ret;
}

CUdeviceptr rig_bytes(size_t size, unsigned char byte)
{
	CUdeviceptr ret;

	cuda(cuMemAlloc(&ret, size));
	cuda(cuMemsetD8Async(ret, byte, size, stream));
	cuda(cuStreamSynchronize(stream));
	return ret;
}

void rig_put(CUdeviceptr to, const void *from, size_t size)
{
	cuda(cuMemcpyHtoDAsync(to, from, size, stream));
	cuda(cuStreamSynchronize(stream));
}

void rig_get(void *to, CUdeviceptr from, size_t size)
{
	cuda(cuStreamSynchronize(stream));
	cuda(cuMemcpyDtoHAsync(to, from, size, stream));
	cuda(cuStreamSynchronize(stream));
}

struct tma_tensor matrix(uint64_t address, int64_t rows, int64_t columns)
{
	return (struct tma_tensor){
		.offset = address, .dtype = TMA_UINT32, .rank = 2, .shape = { rows, columns }
	};
}

bool is_transposed(CUdeviceptr dst, CUdeviceptr src, int64_t rows, int64_t columns)
{
	const size_t bytes = (size_t)(rows * columns) * sizeof(uint32_t);
	uint32_t *to = malloc(bytes), *from = malloc(bytes);
	bool is_right = true;

	rig_get(to, dst, bytes);
	rig_get(from, src, bytes);
	for (int64_t r = 0; r < rows; r++)
		for (int64_t c = 0; c < columns; c++)
			is_right &= to[c * rows + r] == from[r * columns + c];
	free(to);
	free(from);
	return is_right;
}

int enqueue_transpose(CUdeviceptr dst, CUdeviceptr src, int64_t rows, int64_t columns)
{
	const struct tma_tensor to = matrix(dst, columns, rows), from = matrix(src, rows, columns);

	return tma_enqueue(client,
	                   &(struct tma_transform){ .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } },
	                   stream);
}
