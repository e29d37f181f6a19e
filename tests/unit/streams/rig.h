/* SPDX-License-Identifier: Apache-2.0 */
/* A program with a GPU of the stand-in driver and a client of "local:". Failures are Criterion's. */
#ifndef TESTS_UNIT_STREAMS_RIG_H
#define TESTS_UNIT_STREAMS_RIG_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include <criterion/criterion.h>

#include "client/local/door.h"
#include "client/tmaclient.h"

extern tma_client *client;
extern CUcontext context;
extern CUstream stream;

#define cuda(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)

/* The setup of a test: the context is current. */
void rig_open(void);
void rig_close(void);

/* Memory of the device with count uint32_t: value i * 2654435761 at i. */
CUdeviceptr rig_numbers(size_t count);

/* Memory of the device with that byte everywhere. */
CUdeviceptr rig_bytes(size_t size, unsigned char byte);

void rig_put(CUdeviceptr to, const void *from, size_t size);

/* Waits for the stream first. */
void rig_get(void *to, CUdeviceptr from, size_t size);

/* A row-major matrix of uint32 at an address. */
struct tma_tensor matrix(uint64_t address, int64_t rows, int64_t columns);

/* Whether dst, [columns, rows], is the transpose of src, [rows, columns]. */
bool is_transposed(CUdeviceptr dst, CUdeviceptr src, int64_t rows, int64_t columns);

/* Launches that transpose into the stream. Returns the status. */
int enqueue_transpose(CUdeviceptr dst, CUdeviceptr src, int64_t rows, int64_t columns);

#endif
