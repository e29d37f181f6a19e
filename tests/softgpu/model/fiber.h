/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: stacks that one thread of the host runs in turns. The caller resumes a fiber; the fiber gives back
 * by yielding or by ending. Nothing here is shared between threads of the host.
 *
 * A set keeps its stacks, so that starting a fiber costs nothing but a few words; a fiber that is left in the
 * middle is forgotten by starting another one in its place. Sanitizers are told of every switch.
 */
#ifndef TESTS_SOFTGPU_MODEL_FIBER_H
#define TESTS_SOFTGPU_MODEL_FIBER_H

#include <stdbool.h>
#include <stdint.h>

#define FIBER_STACK_BYTES (64 << 10)

struct fiber_set;

/* NULL: no memory. */
struct fiber_set *fiber_set_new(void);
void fiber_set_free(struct fiber_set *set);

/* Room for fibers 0 to n - 1; none may be running. false: no memory. */
bool fiber_set_reserve(struct fiber_set *set, uint32_t n);

/* Fiber i is to run entry(argument) when it is resumed first; it ends when entry returns. */
void fiber_start(struct fiber_set *set, uint32_t i, void (*entry)(void *argument), void *argument);

/* Runs fiber i until it yields or ends. Not from inside a fiber of the set. */
void fiber_resume(struct fiber_set *set, uint32_t i);

/* From inside the running fiber: back to who resumed it. */
void fiber_yield(struct fiber_set *set);

#endif
