/* Words of timelines: 64 bits in a client's memory, that other processes change at any time and may take
 * away.
 *
 * Who waits for a word sleeps on the futex of its low half, shared between processes; who changes a word
 * stores all of it, with release order, and then wakes that futex.
 */
#ifndef KERNELS_CPU_TIMELINE_H
#define KERNELS_CPU_TIMELINE_H

#include <stdint.h>

#include "kernels/engine.h"

/* Whether a point has come, and all that was written before its word is visible: 1, or 0 with the low half as
 * it was read, or DEVICE: the memory failed. The word is read once. */
int timeline_look(const struct engine_point *point, uint32_t *ret_low);

/* Makes a point come, after all that this thread wrote or has seen; 0, or DEVICE: the memory failed. */
int timeline_signal(const struct engine_point *point);

/* Wakes everybody who sleeps on the word; it is not touched. */
void timeline_wake(const struct engine_point *point);

/* The futex of the word. */
uint32_t *timeline_futex(const struct engine_point *point);

#endif
