/* SPDX-License-Identifier: Apache-2.0 */
/* Another process, whose own engine makes memory on the device and holds it for a test. Failures are
 * Criterion's. */
#ifndef TESTS_UNIT_CUDA_HOLDER_H
#define TESTS_UNIT_CUDA_HOLDER_H

#include <stdint.h>
#include <sys/types.h>

#include "kernels/engine.h"

#define HOLDER_MEMORIES 2

struct holder {
	pid_t pid;
	int fd;
	struct engine_export made[HOLDER_MEMORIES];
};

/* Starts the process. Call it before this process opens an engine, since a driver does not survive fork().
 * In the other process, work is called with the bytes of the memories once they have been handed out (NULL:
 * nothing is called), and check when this process is done with them; holder_stop returns what check
 * returned. */
void holder_start(struct holder *holder, enum region_kind kind, uint64_t size,
                  void (*work)(unsigned char *const *bytes), int (*check)(unsigned char *const *bytes));
int holder_stop(struct holder *holder);

#endif
