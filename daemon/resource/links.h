/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what crosses links: bytes that transforms have read in memory of one device, where their destination
 * is on another one. What they read and write in host memory crosses none. */
#ifndef DAEMON_RESOURCE_LINKS_H
#define DAEMON_RESOURCE_LINKS_H

#include <stdint.h>

struct batch_item;
struct devices;
struct engine_move;
struct job;

/* Of a job that is no batch, and has moved so many bytes, read plus written. */
void links_count_job(struct devices *devices, const struct job *job, uint64_t bytes);

/* Of an item of a batch, with its moves, which have not failed. */
void links_count_item(struct devices *devices, const struct batch_item *item,
                      const struct engine_move *moves);

#endif
