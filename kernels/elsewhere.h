/* SPDX-License-Identifier: Apache-2.0 */
/* Explains how an engine that this process does not have would move a transform. The functions have no side
 * effects. */
#ifndef KERNELS_ELSEWHERE_H
#define KERNELS_ELSEWHERE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "explanation.h"
#include "kernels/transform/transform.h"

/* Returns whether there is an engine of that name, "cpu" or "cuda", and sets *ret_name to a static string.
 * engine has len bytes and need not end with a NUL. */
bool explanation_is_of(const char *engine, size_t len, const char **ret_name);

/* Explains a transform for an engine that this process does not have: "cpu" is assumed to have one thread,
 * and "cuda" to be an H200. dst and src are the addresses of elements [0, ..., 0] as far as they are known;
 * only their low bits matter. May take a millisecond. */
void explanation_elsewhere(struct engine_explanation *ret, const char *engine,
                           const struct transform *transform, uint64_t dst, uint64_t src);

#endif
