/* SPDX-License-Identifier: Apache-2.0 */
/* cuMemcpyBatchAsync was introduced in CUDA 12.8. Its first version is used, which later drivers provide as
 * well. */
#include "bench_blocks_base.h"

#include <dlfcn.h>

#define BATCH_VERSION 12080

typedef CUresult (*batch_function)(CUdeviceptr *dst, CUdeviceptr *src, size_t *size, size_t n,
                                   CUmemcpyAttributes *attributes, size_t *attribute_of, size_t n_attributes,
                                   size_t *failed, CUstream stream);

static batch_function find_batch(void)
{
	static batch_function found;
	static bool looked;
	__typeof__(&cuGetProcAddress) find = dlsym(driver.library, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult how;
	void *address = NULL;

	if (looked)
		return found;
	looked = true;
	if (find && find("cuMemcpyBatchAsync", &address, BATCH_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &how) ==
	                CUDA_SUCCESS)
		found = (batch_function)address;
	return found;
}

void base_loop(const struct copies *copies, CUstream stream)
{
	for (size_t i = 0; i < copies->n; i++)
		rig_call(cuMemcpyAsync, (copies->dst[i], copies->src[i], copies->size[i], stream));
}

const char *base_batch_missing(void)
{
	return find_batch() ? NULL : "the driver has no cuMemcpyBatchAsync, which came with CUDA 12.8";
}

void base_batch(const struct copies *copies, CUstream stream)
{
	CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	size_t first = 0, failed = 0;
	struct error err;

	if (driver_check(&err,
	                 find_batch()(copies->dst, copies->src, copies->size, copies->n, &attributes, &first,
	                              1, &failed, stream),
	                 "cuMemcpyBatchAsync") < 0)
		rig_die("%s (copy %zu)", err.message, failed);
}
