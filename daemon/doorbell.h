/* SPDX-License-Identifier: Apache-2.0 */
/* An eventfd by which other processes wake the loop: those that run engines, when jobs have ended. A thread
 * of this process in between would cost each of them another wake-up.
 */
#ifndef DAEMON_DOORBELL_H
#define DAEMON_DOORBELL_H

#include <uv.h>

#include "proto/status.h"

/* Zero-initialised: it is not open. */
struct doorbell {
	int fd;
	uv_poll_t poll;
	void (*on_ring)(void *arg);
	void *arg;
};

/* on_ring is called on the loop's thread, once for any number of rings. INTERNAL. */
int doorbell_open(struct doorbell *doorbell, uv_loop_t *loop, void (*on_ring)(void *arg), void *arg,
                  struct error *err);

/* Does nothing if it is not open. */
void doorbell_close(struct doorbell *doorbell);

#endif
