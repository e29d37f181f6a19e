/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in words. */
#ifndef CLIENT_TMACTL_EXPLAIN_WORDS_H
#define CLIENT_TMACTL_EXPLAIN_WORDS_H

#include "client/tmaclient.h"

/* How the plan's family moves bytes on its engine: one sentence. */
const char *words_of_family(const tma_document *plan);

/* Whether it is one that moves at memory speed. */
int words_is_fast(const tma_document *plan);

#endif
