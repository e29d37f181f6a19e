/* SPDX-License-Identifier: Apache-2.0 */
/* Words of timelines that the program's own streams wait for and write.
 *
 * The device can access a word in its own memory, and one in pinned host memory. If a word lies in ordinary
 * host memory, its eight bytes are pinned here, for all contexts, for as long as the word has users in this
 * process. Any thread that has a context current may call these functions.
 */
#ifndef KERNELS_CUDA_MEMORY_WORDS_H
#define KERNELS_CUDA_MEMORY_WORDS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/status.h"

/* Sets *ret to the device address of the word at `address` of this process. Sets *ret_is_pinned to whether
 * the word was counted as pinned here, in which case word_leave must follow. Returns 0, UNSUPPORTED if
 * streams cannot use such a word, or the driver's error. */
int word_reach(uint64_t address, CUdeviceptr *ret, bool *ret_is_pinned, struct error *err);

/* Drops a use of a word for which word_reach has set *ret_is_pinned. When the last use is dropped, the driver
 * waits for all work on its devices, so that no stream still reaches the word. */
void word_leave(uint64_t address);

#endif
