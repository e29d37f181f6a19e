/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the engine's launches, and how often it sends bytes to the device, by replacing the driver's entry
 * points. */
#ifndef TESTS_UNIT_CUDA_COUNTED_H
#define TESTS_UNIT_CUDA_COUNTED_H

/* Counts since a test last set them to 0. */
extern unsigned n_launches;
/* Launches that may not start before the launches ahead of them have ended. */
extern unsigned n_late_launches;
extern unsigned n_sends;

/* Starts counting. Call it after the driver has been opened and before the first launch. */
void count_launches(void);

#endif
