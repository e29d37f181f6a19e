/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels compiled for the host call: built-ins of the language (threadIdx, __syncthreads) and the
 * instructions of tma.cuh, as plain C functions, which tma_model.hh maps to the kernels' names.
 *
 * Each runs on the fiber of the thread that calls it. A function does not return if its call breaks a rule:
 * that ends the launch.
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

/* Built-in variables of the running thread. */
struct model_here {
	struct model_dim3 thread, block, block_dim, grid_dim;
};

extern const struct model_here *model_here;

/* Kernels report every iteration of every loop while this is set. Each loop has a number of its own. */
extern bool model_is_counting;
void model_iteration_begin(uint32_t loop);
void model_iteration_end(void);

unsigned char *model_dynamic_shared(void);
void model_sync_block(void);
void model_sync_warp(uint32_t mask, uint32_t line);
void model_sync_cluster(void);
uint32_t model_cluster_rank(void);

/* In a programmatic launch, allows the running thread to access global memory from now on. */
void model_grid_wait(void);

/* Returns the value of that lane. The whole warp takes part. */
uint32_t model_shuffle(uint32_t value, uint32_t lane, uint32_t line);

/* The three functions below are called before the access itself; size is 1, 2, 4, 8 or 16. Here and elsewhere
 * in this file, line is the source line of the kernel that makes the call. */
/* whole: fails if a byte has not been written before; false: such bytes may be read. */
void model_tile_read(const void *p, uint32_t size, bool whole, uint32_t line);
void model_tile_write(void *p, uint32_t size, uint32_t line);
void model_global_read(const void *p, uint32_t size, uint32_t line);
void model_global_write(void *p, uint32_t size, uint32_t line);
/* An atomic access: it does not race with other atomic accesses. */
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
/* Waits until all but the latest n groups of this thread have read their shared memory, or have written. */
void model_store_wait_read(uint32_t n);
void model_store_wait(uint32_t n);
void model_fence_proxy_async(void);

#ifdef __cplusplus
}
#endif

#endif
