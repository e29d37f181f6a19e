/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks that one host thread runs in turns. The caller resumes a fiber, which hands control back by
 * yielding or by ending. Host threads share nothing here.
 *
 * A set keeps its stacks, so starting a fiber only writes a few words. A fiber that is not to be finished is
 * abandoned by starting another one in its place. Sanitizers are told of every switch.
 */
#ifndef TESTS_SOFTGPU_MODEL_FIBER_H
#define TESTS_SOFTGPU_MODEL_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#define FIBER_STACK_BYTES (64 << 10)

struct fiber_set;

/* Returns NULL if out of memory. */
struct fiber_set *fiber_set_new(void);
void fiber_set_free(struct fiber_set *set);

/* Makes room for fibers 0 to n - 1, none of which may be running. Returns false if out of memory. */
bool fiber_set_reserve(struct fiber_set *set, uint32_t n);

/* Makes fiber i run entry(argument) when it is next resumed; the fiber ends when entry returns. */
void fiber_start(struct fiber_set *set, uint32_t i, void (*entry)(void *argument), void *argument);

/* Runs fiber i until it yields or ends. Must not be called from a fiber of the set. */
void fiber_resume(struct fiber_set *set, uint32_t i);

/* Hands control back to whoever resumed the running fiber, which is the caller. */
void fiber_yield(struct fiber_set *set);

#endif
