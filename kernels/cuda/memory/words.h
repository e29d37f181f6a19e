/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines that streams of the program's own wait for and write.
 *
 * The device reaches a word in its own memory, and one in memory of the host that is pinned. Of ordinary
 * memory, the eight bytes of the word are pinned here, for all contexts, as long as they have users in this
 * process. Any thread may call these functions with a current context.
 */
#ifndef KERNELS_CUDA_MEMORY_WORDS_H
#define KERNELS_CUDA_MEMORY_WORDS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/status.h"

/* Sets *ret to the address by which devices know the word at an address of this process, and *ret_is_pinned
 * to whether it has a user more here. Returns 0, UNSUPPORTED if no stream takes such a word, or the driver's
 * error. */
int word_reach(uint64_t address, CUdeviceptr *ret, bool *ret_is_pinned, struct error *err);

/* Takes a user off a word that word_reach has pinned. For the last one the driver waits for all that is on
 * its devices, so that no stream comes to the word any more. */
void word_leave(uint64_t address);

#endif
