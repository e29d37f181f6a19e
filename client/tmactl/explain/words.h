/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a plan in words. */
#ifndef CLIENT_TMACTL_EXPLAIN_WORDS_H
#define CLIENT_TMACTL_EXPLAIN_WORDS_H

#include <stdbool.h>

#include "client/tmaclient.h"

/* Returns how the plan's kernel family moves bytes on its engine. */
const char *words_of_family(const tma_document *plan);

/* Returns whether the plan moves bytes at about the speed of memory. Judges by the predicted time or, if
 * there is none, by the kernel family. */
bool words_is_fast(const tma_document *plan);

/* Returns the same judgement in words, with its reason. */
const char *words_of_speed(const tma_document *plan);

#endif
