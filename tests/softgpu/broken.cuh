/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions that the sources of the kernels with mistakes share. */
#ifndef TESTS_SOFTGPU_BROKEN_CUH
#define TESTS_SOFTGPU_BROKEN_CUH

#include "broken.h"

#include "tests/seeds/cluster.cuh"

constexpr uint32_t kBarrierAt = 2048;

DEVICE bool makes(const broken_args &args, enum mistake mistake)
{
	return args.mistake == (uint32_t)mistake;
}

#endif
