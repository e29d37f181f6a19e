/* SPDX-License-Identifier: Apache-2.0 */
/* Index lists that travel in a launch's arguments, and need no memory on the device. */
#ifndef KERNELS_CUDA_LAUNCH_ENCLOSED_H
#define KERNELS_CUDA_LAUNCH_ENCLOSED_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/engine.h"

/* Bytes of an entry as it travels, 2 or 4; 0: the list does not, since it is in a region, or too long, or the
 * plan's kernel is not one for lists alone, or offsets of layers have to be sent to memory anyway. */
uint32_t enclosed_entry_bytes(const struct plan *plan, const struct engine_blocks *blocks);

/* Whether it is one for the kernel with the smaller arguments. */
bool enclosed_is_short(const struct engine_blocks *blocks, uint32_t entry_bytes);

/* Writes the entries, in whole groups of 32, and counts what is passed over; one that is, is all ones.
 */
void enclosed_write(struct engine_blocks *blocks, uint32_t entry_bytes, void *to);

#endif
