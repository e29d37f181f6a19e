/* SPDX-License-Identifier: Apache-2.0 */
/* Most often only one message of the stream is changed, so that the others bring the target to the state
 * where the change matters. */
#include "stream.h"

#include "fuzz.h"
#include "item.h"
#include "spoil.h"
#include "tests/support/oracle.h"
#include "traffic.h"

#include <string.h>

/* Returns where a random whole message starts; size if there is none. */
static size_t choose(const uint8_t *data, size_t size, uint64_t *random, size_t *ret_len)
{
	static struct item items[ITEM_MOST];
	size_t chosen = size;
	uint64_t seen = 0;

	*ret_len = 0;
	for (size_t at = 0; at < size && items_of(data + at, size - at, items, ITEM_MOST); at += items[0].end)
		if (oracle_random(random) % ++seen == 0) {
			chosen = at;
			*ret_len = items[0].end;
		}
	return chosen;
}

size_t stream_spoil(uint8_t *data, size_t size, size_t max_size, uint64_t *random)
{
	uint8_t message[TRAFFIC_MOST];
	size_t len, at = choose(data, size, random, &len), spoilt;

	if (len == 0 || len > sizeof message)
		return spoil_somehow(data, size, max_size, random);
	memcpy(message, data + at, len);
	spoilt = spoil_somehow(message, len, sizeof message, random);
	item_splice(data, &size, max_size, at, len, message, spoilt);
	return size;
}

static size_t append(uint8_t *data, size_t size, size_t max_size, uint64_t *random)
{
	uint8_t message[TRAFFIC_MOST];
	const struct method *method;
	size_t len = traffic_request(message, (uint32_t)(oracle_random(random) % 8), random, &method);

	item_splice(data, &size, max_size, size, 0, message, len);
	return size;
}

size_t stream_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	uint64_t random = seed;

	if (max_size < 2)
		return LLVMFuzzerMutate(data, size, max_size);
	if (size == 0) {
		data[0] = (uint8_t)oracle_random(&random);
		size = append(data, 1, max_size, &random);
	}
	switch (oracle_random(&random) % 8) {
	case 0:
		data[0] = (uint8_t)oracle_random(&random);
		return size;
	case 1:
		return append(data, size, max_size, &random);
	case 2:
		return LLVMFuzzerMutate(data, size, max_size);
	default:
		return 1 + stream_spoil(data + 1, size - 1, max_size - 1, &random);
	}
}
