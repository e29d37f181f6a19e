/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the stand-in driver share: the device open, and short ways to do what is not looked at.
 * Failures are Criterion's. */
#ifndef TESTS_UNIT_CUDA_SOFT_H
#define TESTS_UNIT_CUDA_SOFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/driver/driver.h"

extern struct device soft;

/* NAME=VALUE, "" for none: before soft_open. */
void soft_set(const char *variable);

void soft_open(void);

/* Everything has to have been given back. */
void soft_close(void);

/* The call has to answer that. */
#define expect_result(call, wanted) soft_expect(driver.call, wanted, #call, __LINE__)
#define expect_ok(call)             expect_result(call, CUDA_SUCCESS)
void soft_expect(CUresult result, CUresult wanted, const char *call, int line);

CUdeviceptr soft_memory(size_t size, unsigned char value);
CUstream soft_stream(void);
CUevent soft_event(void);

/* bulk_copy of one run; size a multiple of 16, or the model's report is what comes. */
CUresult soft_launch(CUstream stream, CUdeviceptr dst, CUdeviceptr src, size_t size);

/* Whether all bytes are that. */
bool soft_is(CUdeviceptr address, size_t size, unsigned char value);

/* Runs tests/unit/cuda/<command> on the stand-in driver, with more NAME=VALUE in its environment. What it
 * printed is in ret. Its exit status. */
int soft_child(char *ret, size_t size, const char *environment, const char *command);

#endif
