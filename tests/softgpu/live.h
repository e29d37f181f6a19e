/* SPDX-License-Identifier: Apache-2.0 */
/* What a test may ask of the stand-in driver and of no other. */
#ifndef TESTS_SOFTGPU_LIVE_H
#define TESTS_SOFTGPU_LIVE_H

#include <stddef.h>

/* How many objects of the driver there are (references to contexts, modules, streams, events, memories,
 * mappings), and in words, a line a kind: what has not been given back. */
size_t softgpu_live(char *ret, size_t size);

/* Loses a device: from now on all its calls fail with that CUresult, and what is under way there is thrown
 * away. The others go on; a new process has it again. */
void softgpu_lose(int device, int result);

#endif
