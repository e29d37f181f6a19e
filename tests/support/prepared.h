/* SPDX-License-Identifier: Apache-2.0 */
/* An engine has to be told more of a move than its places; this makes it from a spec. Tests at
 * kernels/engine.h tell an engine through here, so that only this file of theirs knows how it is told. */
#ifndef TESTS_SUPPORT_PREPARED_H
#define TESTS_SUPPORT_PREPARED_H

#include "kernels/engine.h"

/* Completes a move whose memories and offsets are set. blocks is the list that the move is to be done for, or
 * NULL. Returns 0 or the status of the error, which leaves the move as it was. Copies of the move share what
 * was made for it. */
int prepare(struct engine *engine, const struct transform_spec *spec, const struct engine_blocks *blocks,
            struct engine_move *move, struct error *err);

/* Frees what was made for a move and for its copies. */
void prepared_free(struct engine_move *move);

/* Finds how the engine says that it would do the move, by the word that replies have for it. */
int prepared_path(struct engine *engine, const struct engine_move *move, const char **ret, struct error *err);

/* Returns how a job that has ended was moved, by the same words. */
const char *job_path(const struct engine_job *job);

#endif
