/* SPDX-License-Identifier: Apache-2.0 */
/* Kept input of sessions lies in memory of its own, and memory that malloc holds is returned to the
 * system. */
#ifndef DAEMON_NET_INPUT_H
#define DAEMON_NET_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

struct buffer;
struct connections;

/* A session has one block of kept input while it has input that it cannot handle yet, because a message is
 * incomplete or has to wait.
 *
 * Blocks lie in one mapping, which is created at the start and takes memory only as far as it is used. The
 * memory of blocks that have not been used for a while is returned to the system on the work queue. So the
 * loop unmaps nothing, and waits for no lock; if blocks came from malloc, it would wait for malloc's lock.
 */

/* Size of a block, which is that of the largest message. What is kept is part of one message, or was read by
 * one call. */
#define INPUT_BYTES 65536

#define INPUTS_RETURNED 256 /* maximum number of blocks whose memory one item of the work queue returns */

struct inputs {
	uint8_t *memory; /* the mapping; NULL: blocks come from malloc */
	uint32_t n;
	uint32_t *free;   /* stack of the numbers of free blocks */
	uint32_t n_free;  /* number of free blocks; the one freed last is taken first */
	uint32_t n_clean; /* the first n_clean blocks of the stack take no memory */
	/* The first `unused` blocks of the stack have not been taken since the timer's last check. */
	uint32_t unused;
	uv_timer_t timer; /* runs while free blocks take memory */
	uv_work_t work;
	uint32_t n_returning; /* number of blocks that are off the stack while their memory is returned */
	uint32_t returning[INPUTS_RETURNED];
};

/* Makes room for about n sessions. If that fails, blocks come from malloc. */
void inputs_open(struct inputs *inputs, uv_loop_t *loop, uint64_t n);

/* Frees the mapping. Must be called after the loop has ended. */
void inputs_deinit(struct inputs *inputs);

/* Drops len bytes from the front, and frees the block when its last byte is dropped. */
void input_drop(struct inputs *inputs, struct buffer *in, size_t len);

/* Memory is returned to the system after many connections have gone, or have read their replies.
 *
 * Freed memory lies between memory in use, and free alone leaves it to the process. malloc_trim returns it.
 * It runs on the work queue, and the loop waits for it only where both want malloc's lock. Therefore it runs
 * at most once a second, and only after much memory has been freed.
 */

struct trim {
	uv_timer_t timer; /* runs from when much has been freed until it is trimmed */
	uv_work_t work;
	bool is_under_way;
	uint64_t peak; /* maximum number of bytes that connections have held since the last trim */
};

/* Starts the timer if much has been freed. To be called once in each iteration of the loop. */
void trim_check(struct connections *connections);

#endif
