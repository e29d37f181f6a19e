/* SPDX-License-Identifier: Apache-2.0 */
/* Reads fields of the service's documents. */
#include "field.h"

#include "client/tmactl/terminal/print.h"

const char *field_text(const tma_document *map, const char *key)
{
	return print_safe(tma_document_text(tma_document_find(map, key)));
}

uint64_t field_uint(const tma_document *map, const char *key)
{
	int64_t value = tma_document_int(tma_document_find(map, key));

	return value < 0 ? 0 : (uint64_t)value;
}

uint64_t field_sum(const tma_document *counters)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < tma_document_count(counters); i++)
		sum += (uint64_t)tma_document_int(tma_document_at(counters, i, NULL));
	return sum;
}
