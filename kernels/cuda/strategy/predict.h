/* SPDX-License-Identifier: Apache-2.0 */
/* How long a plan will take on a device: what it costs next to a copy, times what the device's own copy
 * takes. Pure.
 *
 * The speed of a copy is computed from the device's memory clock and bus, not measured when an engine starts:
 * the figure is then the same at every start, whoever else uses the device, and needs no memory of a device
 * that is full. Data is taken to be in no cache.
 */
#ifndef KERNELS_CUDA_STRATEGY_PREDICT_H
#define KERNELS_CUDA_STRATEGY_PREDICT_H

#include <stdint.h>

/* Of a device, the speed of its own copy from its memory to its memory. */
struct copy_speed {
	double bytes_per_ns; /* read plus written; 0: not known */
	double fixed_ns;     /* of a copy of any size, between events before and after it */
};

/* memory_khz: the clock of memory that transfers twice a cycle; bus_bits: the width of its bus. 0: not known.
 */
struct copy_speed copy_speed_of(uint32_t memory_khz, uint32_t bus_bits);

/* bytes: read plus written. 0: not known. */
double copy_speed_ns(const struct copy_speed *speed, uint64_t bytes);

#endif
