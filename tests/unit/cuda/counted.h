/* SPDX-License-Identifier: Apache-2.0 */
/* How many launches the engine makes, and how often it sends bytes to the device: the driver's entry points
 * are taken over. */
#ifndef TESTS_UNIT_CUDA_COUNTED_H
#define TESTS_UNIT_CUDA_COUNTED_H

/* Since it was last set to 0. */
extern unsigned n_launches;
extern unsigned n_late_launches; /* that may not start before those before them have ended */
extern unsigned n_sends;

/* After the driver has been opened, and before the first launch. */
void count_launches(void);

#endif
