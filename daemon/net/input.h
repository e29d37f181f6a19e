/* SPDX-License-Identifier: Apache-2.0 */
/* Kept input: one block for each session that has input which it cannot handle yet, because the message is
 * incomplete or has to wait.
 *
 * Blocks lie in one mapping, which is created at the start and takes memory only as far as it is used. The
 * memory of blocks that have not been used for a while is returned to the system on the work queue: the loop
 * unmaps nothing, and waits for no lock that is held meanwhile, as it would for malloc's.
 */
#ifndef DAEMON_NET_INPUT_H
#define DAEMON_NET_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

/* The size of the largest message: what is kept is part of one message, or was read at once. */
#define INPUT_BYTES 65536

#define INPUTS_RETURNED 256 /* blocks, at most, in one item of the work queue */

struct buffer;

struct inputs {
	uint8_t *memory; /* NULL: blocks come from malloc */
	uint32_t n;
	uint32_t *free;   /* a stack */
	uint32_t n_free;  /* the block freed last is taken first */
	uint32_t n_clean; /* the first so many of them take no memory */
	uint32_t unused;  /* the first so many have not been taken since the timer's last check */
	uv_timer_t timer; /* runs while some free blocks take memory */
	uv_work_t work;
	uint32_t n_returning; /* taken off the stack while their memory is returned */
	uint32_t returning[INPUTS_RETURNED];
};

/* Makes room for about n sessions; if there is no memory for that, blocks come from malloc. */
void inputs_open(struct inputs *inputs, uv_loop_t *loop, uint64_t n);

/* The handle closes in the loop's next iteration. */
void inputs_close(struct inputs *inputs);

/* After the loop has ended. */
void inputs_deinit(struct inputs *inputs);

/* Appends bytes to those that are kept, INPUT_BYTES in all. Returns 0 or NO_MEMORY. */
int input_keep(struct inputs *inputs, struct buffer *in, const uint8_t *data, size_t len);

/* Drops bytes from the front; with the last byte, the block is freed. */
void input_drop(struct inputs *inputs, struct buffer *in, size_t len);

#endif
