/* SPDX-License-Identifier: Apache-2.0 */
/* What a test may ask of the stand-in driver and of no other. */
#ifndef TESTS_SOFTGPU_LIVE_H
#define TESTS_SOFTGPU_LIVE_H

#include <stddef.h>

/* How many objects of the driver there are (references to contexts, modules, streams, events, memories,
 * mappings), and in words, a line a kind: what has not been given back. */
size_t softgpu_live(char *ret, size_t size);

#endif
