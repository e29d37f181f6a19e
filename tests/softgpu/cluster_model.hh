/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces cluster.cuh when kernels are compiled for the host: the same names, implemented by the software
 * model. */
#ifndef TESTS_SOFTGPU_CLUSTER_MODEL_HH
#define TESTS_SOFTGPU_CLUSTER_MODEL_HH

#include "tests/softgpu/tma_model.hh"

DEVICE void load_tile_multicast(void *tile, const CUtensorMap *map, uint32_t rank, const int32_t *c,
                                barrier *b, uint16_t mask)
{
	model_load_tile_multicast(tile, map, rank, c, b, mask);
}

DEVICE void load_bulk_multicast(void *to, const void *from, uint32_t bytes, barrier *b, uint16_t mask)
{
	model_load_bulk_multicast(to, from, bytes, b, mask);
}

DEVICE void copy_bulk(void *to, const void *from, uint32_t bytes, barrier *b, uint32_t block)
{
	model_copy_bulk(to, from, bytes, b, block);
}

DEVICE void barrier_arrive_block(barrier *b, uint32_t block, CALLER_LINE)
{
	model_barrier_arrive_block(b, block, line);
}

DEVICE void barrier_wait_cluster(barrier *b, uint32_t parity, CALLER_LINE)
{
	model_barrier_wait_cluster(b, parity, line);
}

#endif
