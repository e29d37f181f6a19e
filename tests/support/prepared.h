/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares moves for an engine from a transform spec. Tests at the level of kernels/engine.h do so only
 * through this file, so that no other one depends on how an engine is given a move. */
#ifndef TESTS_SUPPORT_PREPARED_H
#define TESTS_SUPPORT_PREPARED_H

#include "kernels/engine.h"

/* Completes a move whose memories and offsets are set. blocks is the list that the move is to be done for, or
 * NULL. Returns 0 or an error's status, and then leaves the move unchanged. Copies of the move share what was
 * made for it. */
int prepare(struct engine *engine, const struct transform_spec *spec, const struct engine_blocks *blocks,
            struct engine_move *move, struct error *err);

/* Frees what was made for a move and for its copies. */
void prepared_free(struct engine_move *move);

/* Sets *ret to the family that would do the move, as replies name it. Returns 0 or an error. */
int prepared_path(struct engine *engine, const struct engine_move *move, const char **ret, struct error *err);

/* Returns the family that moved a job that has ended, as replies name it. */
const char *job_path(const struct engine_job *job);

#endif
