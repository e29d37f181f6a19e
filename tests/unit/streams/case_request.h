/* SPDX-License-Identifier: Apache-2.0 */
/* Makes requests of libtmaclient for the random cases of the oracles. */
#ifndef TESTS_UNIT_STREAMS_CASE_REQUEST_H
#define TESTS_UNIT_STREAMS_CASE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tmaclient.h"
#include "tests/support/conversion_case.h"

/* The addresses at which the memories of a case lie. */
struct case_places {
	uint64_t dst, src, scale, bias;
};

/* A tensor with the arrays that it points to. */
struct case_view {
	struct tma_tensor tensor;
	int64_t strides[TMA_MAX_RANK];
	int64_t split[2 * SPLIT_MAX];
};

struct case_request {
	struct tma_transform transform;
	struct tma_conversion conversion;
	struct tma_number scale, bias;
	struct case_view dst_view, src_view, scale_view, bias_view;
	int perm[TMA_MAX_RANK];
};

/* Makes the request of a case, which must outlive it. The request points to itself, so it must not be
 * copied. */
void case_request_init(struct case_request *ret, const struct conversion_case *c, bool converts,
                       const struct case_places *places);

/* Adds the splits of the two tensors to a request. */
void case_request_split(struct case_request *request, const struct split_list *dst,
                        const struct split_list *src);

#endif
