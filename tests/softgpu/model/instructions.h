/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels that were compiled for the host call: the language's own (threadIdx, __syncthreads) and the
 * instructions of tma.cuh, by plain C functions. tma_model.hh gives them the names that kernels use.
 *
 * Each runs on the fiber of the thread that calls it. A rule that is broken ends the launch: the function
 * does not return.
 */
#ifndef TESTS_SOFTGPU_MODEL_INSTRUCTIONS_H
#define TESTS_SOFTGPU_MODEL_INSTRUCTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct model_dim3 {
	uint32_t x, y, z;
};

/* Of the thread that runs now. */
struct model_here {
	struct model_dim3 thread, block, block_dim, grid_dim;
};

extern const struct model_here *model_here;

/* While a launch is counted: every iteration of every loop; each loop has a number of its own. */
extern bool model_is_counting;
void model_iteration_begin(uint32_t loop);
void model_iteration_end(void);

unsigned char *model_dynamic_shared(void);
void model_sync_block(void);
void model_sync_warp(uint32_t mask, uint32_t line);
void model_sync_cluster(void);
uint32_t model_cluster_rank(void);

/* The running thread may touch global memory from now on, in a launch that is programmatic. */
void model_grid_wait(void);

/* The value of that lane; the whole warp takes part. */
uint32_t model_shuffle(uint32_t value, uint32_t lane, uint32_t line);

/* Before the access itself; size is 1, 2, 4, 8 or 16. line: the kernel's that makes it, as above and below.
 */
/* whole: every byte of it has to have been written. */
void model_tile_read(const void *p, uint32_t size, bool whole, uint32_t line);
void model_tile_write(void *p, uint32_t size, uint32_t line);
void model_global_read(const void *p, uint32_t size, uint32_t line);
void model_global_write(void *p, uint32_t size, uint32_t line);
/* Atomic: of threads that nothing orders, none is wrong. */
void model_tile_combine(void *p, uint32_t size, uint32_t line);
void model_global_combine(void *p, uint32_t size, uint32_t line);

void model_barrier_init(void *barrier, uint32_t arrivals);
void model_barrier_init_fence(void);
void model_barrier_inval(void *barrier);
void model_barrier_arrive(void *barrier, uint32_t line);
void model_barrier_arrive_expect(void *barrier, uint32_t bytes, uint32_t line);
bool model_barrier_test(void *barrier, uint32_t parity, uint32_t line);
void model_barrier_wait(void *barrier, uint32_t parity, uint32_t line);
void model_barrier_wait_cluster(void *barrier, uint32_t parity, uint32_t line);
void model_barrier_arrive_block(void *barrier, uint32_t rank, uint32_t line);

void model_prefetch_map(const void *map);
void model_load_tile(void *tile, const void *map, uint32_t rank, const int32_t *c, void *barrier);
void model_load_tile_multicast(void *tile, const void *map, uint32_t rank, const int32_t *c, void *barrier,
                               uint32_t mask);
void model_load_bulk(void *to, const void *from, uint32_t bytes, void *barrier);
void model_load_bulk_multicast(void *to, const void *from, uint32_t bytes, void *barrier, uint32_t mask);
void model_copy_bulk(void *to, const void *from, uint32_t bytes, void *barrier, uint32_t rank);
void model_store_tile(const void *map, uint32_t rank, const int32_t *c, const void *tile);
void model_store_bulk(void *to, const void *from, uint32_t bytes);
void model_store_commit(void);
/* Until at most n groups of this thread have still to read their shared memory, or to write. */
void model_store_wait_read(uint32_t n);
void model_store_wait(uint32_t n);
void model_fence_proxy_async(void);

#ifdef __cplusplus
}
#endif

#endif
