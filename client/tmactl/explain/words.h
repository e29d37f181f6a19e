/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words. */
#ifndef CLIENT_TMACTL_EXPLAIN_WORDS_H
#define CLIENT_TMACTL_EXPLAIN_WORDS_H

#include <stdbool.h>

#include "client/tmaclient.h"

/* How the plan's family moves bytes on its engine: one sentence. */
const char *words_of_family(const tma_document *plan);

/* Whether it moves at about the speed of memory: by its prediction or, where there is none, by its family. */
bool words_is_fast(const tma_document *plan);

/* The same in words, with what it is judged by. */
const char *words_of_speed(const tma_document *plan);

#endif
