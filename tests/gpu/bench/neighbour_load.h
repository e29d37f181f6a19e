/* SPDX-License-Identifier: Apache-2.0 */
/* A request that a client repeats: one transform, or one list of blocks, between two pieces of memory. A
 * failure ends the program. */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_LOAD_H
#define TESTS_GPU_BENCH_NEIGHBOUR_LOAD_H

#include "client/tmaclient.h"
#include "tests/gpu/rig.h"

#define LOAD_DEPTH 8 /* most requests of a load under way */

enum side { SIDE_DEVICE, SIDE_HOST };

struct memory {
	CUdeviceptr device; /* 0: host memory */
	tma_region *region;
};

void memory_init(struct memory *memory, tma_client *client, enum side side, size_t size);
void memory_deinit(struct memory *memory);

enum load_kind { LOAD_TRANSFORM, LOAD_GATHER, LOAD_SCATTER };

struct load {
	tma_client *client;
	enum load_kind kind;
	int depth;
	double bytes; /* bytes read and written by a request */
	struct tma_tensor dst, src;
	struct tma_transform transform;
	struct tma_blocks blocks;
	int32_t *index;
};

/* Prepares a transpose of n x n float32. */
void load_init_square(struct load *load, tma_client *client, const struct memory *dst,
                      const struct memory *src, int64_t n);

/* Prepares a copy of as many bytes without a permutation. */
void load_init_copy(struct load *load, tma_client *client, const struct memory *dst, const struct memory *src,
                    size_t bytes);

/* Prepares a list of all n blocks, in an order that is the same in every run. */
void load_init_blocks(struct load *load, tma_client *client, enum load_kind kind, const struct memory *dst,
                      const struct memory *src, uint32_t n, uint32_t block_bytes);

void load_deinit(struct load *load);

/* Keeps load->depth requests under way until go_on returns false. Returns how many there were,
 * and sets ret_ns to the engine's time for all of them. */
typedef bool load_go_on(void *arg, int sent);
int load_keep_busy(struct load *load, load_go_on *go_on, void *arg, double *ret_ns);

/* Carries out n requests. */
void load_repeat(struct load *load, int n);

/* Returns the rate over so many seconds, in GB/s read plus written. */
double load_rate(struct load *load, double seconds);

#endif
