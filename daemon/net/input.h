/* What sessions keep of their input until the rest of a message has come, or until they may handle it: a
 * block each.
 *
 * Blocks lie in one mapping, which is made at the start and takes memory as far as it is used. The memory of
 * those that have not been used for a while goes back to the system, on the work queue: the loop unmaps
 * nothing, and waits for no lock that is held meanwhile, as it would for malloc's.
 */
#ifndef DAEMON_NET_INPUT_H
#define DAEMON_NET_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <uv.h>

/* As many bytes as the largest message: what is kept is a part of one, or was read at once. */
#define INPUT_BYTES 65536

#define INPUTS_RETURNED 256 /* blocks at most by one piece of work */

struct buffer;

struct inputs {
	uint8_t *memory; /* NULL: there is none, and blocks are malloc's */
	uint32_t n;
	uint32_t *free;   /* a stack */
	uint32_t n_free;  /* the last one given back is the first one taken */
	uint32_t n_clean; /* of them, the first ones: they take no memory */
	uint32_t unused;  /* the first ones again: nobody took them since the timer's last check */
	uv_timer_t timer; /* runs while there are others */
	uv_work_t work;
	uint32_t n_returning; /* taken from the stack by the work that is under way */
	uint32_t returning[INPUTS_RETURNED];
};

/* Room for about so many sessions; where it cannot be had, malloc does. */
void inputs_open(struct inputs *inputs, uv_loop_t *loop, uint64_t n);

/* The handle closes in the loop's next iteration. */
void inputs_close(struct inputs *inputs);

/* After the loop's end. */
void inputs_deinit(struct inputs *inputs);

/* Keeps bytes behind those that are kept already, INPUT_BYTES in all: 0 or NO_MEMORY. */
int input_keep(struct inputs *inputs, struct buffer *in, const uint8_t *data, size_t len);

/* Drops bytes from the front, and with the last of them the block. */
void input_drop(struct inputs *inputs, struct buffer *in, size_t len);

#endif
