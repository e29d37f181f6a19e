/* SPDX-License-Identifier: Apache-2.0 */
/* One round of an in-flight job (staging.h) on the device. */
#ifndef KERNELS_CUDA_ROUND_H
#define KERNELS_CUDA_ROUND_H

#include "in_flight.h"

/* Launches the next round, and counts it as launched where anything of it may be on the device. On failure
 * nothing more follows; DEVICE_LOST is in_flight's status. */
int round_launch(struct in_flight_pool *pool, struct in_flight_job *in_flight);

#endif
