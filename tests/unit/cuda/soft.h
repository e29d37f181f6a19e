/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the stand-in driver: the open device, and short ways to do what a test does not look
 * at. Failures are Criterion's. */
#ifndef TESTS_UNIT_CUDA_SOFT_H
#define TESTS_UNIT_CUDA_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/driver/driver.h"

extern struct device soft;

/* Sets an environment variable, NAME=VALUE; "": none. Call it before soft_open. */
void soft_set(const char *variable);

void soft_open(void);

/* Closes the device. Fails unless everything has been given back. */
void soft_close(void);

/* Expects the call to return `wanted`. */
#define expect_result(call, wanted) soft_expect(driver.call, wanted, #call, __LINE__)
#define expect_ok(call)             expect_result(call, CUDA_SUCCESS)
void soft_expect(CUresult result, CUresult wanted, const char *call, int line);

CUdeviceptr soft_memory(size_t size, unsigned char value);
CUstream soft_stream(void);
CUevent soft_event(void);

/* Launches bulk_copy of one run. The size has to be a multiple of 16, or the model reports an error. */
CUresult soft_launch(CUstream stream, CUdeviceptr dst, CUdeviceptr src, size_t size);

/* Returns whether all bytes have the value. */
bool soft_is(CUdeviceptr address, size_t size, unsigned char value);

/* Runs tests/unit/cuda/<command> on the stand-in driver with NAME=VALUE added to its environment. Sets ret to
 * what it printed and returns its exit status. */
int soft_child(char *ret, size_t size, const char *environment, const char *command);

#endif
