/* SPDX-License-Identifier: Apache-2.0 */
/* One transform between two stores by the service, and a simple loop that computes the expected bytes of both
 * memories, including those outside the regions. */
#ifndef TESTS_GPU_CLIENTS_CLIENTS_MOVE_H
#define TESTS_GPU_CLIENTS_CLIENTS_MOVE_H

#include "clients_store.h"

struct move {
	const char *name;
	enum tma_dtype dtype;
	int64_t shape[2];   /* shape of the source */
	uint64_t dst_bytes; /* offset of element [0, 0] from the region's start */
	uint64_t src_bytes;
	int perm[2];
	int64_t before[2];
	int64_t after[2];
};

/* Moves of a few KiB for every kind of kernel. */
extern const struct move moves[];
extern const size_t n_moves;

/* Returns the bytes that a move needs of each region, with room at the end. */
size_t move_room(const struct move *move);

/* Returns the move with its shape multiplied by scale in both dimensions. */
struct move move_scaled(const struct move *move, int64_t scale);

/* Fills both stores with random bytes, moves, and compares. */
void move_check(tma_client *client, struct store *dst, struct store *src, const struct move *move,
                uint64_t *state);

/* A request without stores. Its transform points into the structure. */
struct move_request {
	struct tma_tensor dst;
	struct tma_tensor src;
	struct tma_transform transform;
};
void move_request(struct move_request *ret, const struct store *dst, const struct store *src,
                  const struct move *move);

/* Returns random bytes, which the caller frees. */
uint8_t *move_random(size_t size, uint64_t *state);

#endif
