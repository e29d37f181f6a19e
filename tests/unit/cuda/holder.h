/* SPDX-License-Identifier: Apache-2.0 */
/* Another process that holds memory on the device for a test: its own engine made it. Failures are
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

/* Before there is an engine in this process: a driver does not live through fork. work, in the other process,
 * gets the memories' bytes once they have been handed out (NULL: nothing), and check when this process is
 * done with them: what check returns is what holder_stop does. */
void holder_start(struct holder *holder, enum region_kind kind, uint64_t size,
                  void (*work)(unsigned char *const *bytes), int (*check)(unsigned char *const *bytes));
int holder_stop(struct holder *holder);

#endif
