/* SPDX-License-Identifier: Apache-2.0 */
/* A program with a GPU of the stand-in driver and a client of "local:", for tests of requests in streams.
 * Failures are Criterion's. */
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

/* The setup and the teardown of a test. rig_open leaves the device's context current. */
void rig_open(void);
void rig_close(void);

/* Returns device memory with `count` uint32_t, where element i is i * 2654435761. */
CUdeviceptr rig_numbers(size_t count);

/* Returns device memory in which every byte has the value. */
CUdeviceptr rig_bytes(size_t size, unsigned char byte);

void rig_put(CUdeviceptr to, const void *from, size_t size);

/* Copies from the device after it has waited for the stream. */
void rig_get(void *to, CUdeviceptr from, size_t size);

/* Returns a row-major matrix of uint32 at an address. */
struct tma_tensor matrix(uint64_t address, int64_t rows, int64_t columns);

/* Returns whether dst, [columns, rows], is the transpose of src, [rows, columns]. */
bool is_transposed(CUdeviceptr dst, CUdeviceptr src, int64_t rows, int64_t columns);

/* Launches a transpose into the stream and returns its status. */
int enqueue_transpose(CUdeviceptr dst, CUdeviceptr src, int64_t rows, int64_t columns);

#endif
