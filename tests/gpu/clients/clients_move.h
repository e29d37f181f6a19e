/* SPDX-License-Identifier: Apache-2.0 */
/* One transform between two stores by the service, and the dumb loop that says what it should have done: with
 * every byte of both memories, those outside the regions too.
 */
#ifndef TESTS_GPU_CLIENTS_CLIENTS_MOVE_H
#define TESTS_GPU_CLIENTS_CLIENTS_MOVE_H

#include "clients_store.h"

struct move {
	const char *name;
	enum tma_dtype dtype;
	int64_t shape[2];   /* of the source */
	uint64_t dst_bytes; /* of element [0, 0], from the region's start */
	uint64_t src_bytes;
	int perm[2];
	int64_t before[2];
	int64_t after[2];
};

/* Every kind of kernel, a few KiB each. */
extern const struct move moves[];
extern const size_t n_moves;

/* The bytes that a move needs of each region, with room at its end. */
size_t move_room(const struct move *move);

/* shape times scale in both dimensions. */
struct move move_scaled(const struct move *move, int64_t scale);

/* Fills both stores with random bytes, moves, and compares. */
void move_check(tma_client *client, struct store *dst, struct store *src, const struct move *move,
                uint64_t *state);

/* The request alone. The transform points into it. */
struct move_request {
	struct tma_tensor dst;
	struct tma_tensor src;
	struct tma_transform transform;
};
void move_request(struct move_request *ret, const struct store *dst, const struct store *src,
                  const struct move *move);

/* random bytes: the caller's to free. */
uint8_t *move_random(size_t size, uint64_t *state);

#endif
