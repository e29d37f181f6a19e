/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that a test may call in the stand-in driver but that the real driver does not have. */
#ifndef TESTS_SOFTGPU_LIVE_H
#define TESTS_SOFTGPU_LIVE_H

#include <stddef.h>

/* Returns how many objects of the driver are alive (references to contexts, modules, streams, events, memory,
 * mappings), and writes one line for each kind to ret, of size bytes. */
size_t softgpu_live(char *ret, size_t size);

/* Loses a device: from now on all its calls return that CUresult, and its work under way is dropped. Other
 * devices go on; a new process has the device again. */
void softgpu_lose(int device, int result);

#endif
