/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off: the table keeps its columns
/* Functions by which the blocks of a cluster access each other, each a single instruction; tma.cuh has those that the
 * engine's kernels use. On the host, cluster_model.hh provides them.
 *
 *   load_tile_multicast    global -> shared memory of several blocks, at the same offset in each; the bytes complete on
 *   load_bulk_multicast    the barrier at the same offset in each
 *   copy_bulk              shared -> shared memory of another block, completes on a barrier there; nothing else tells
 *                          that the source has been read
 *   barrier_arrive_block   arrives on a barrier of another block
 *   barrier_wait_cluster   barrier_wait that also acquires what other blocks did before they arrived
 *
 * Addresses are given as this block's own, whichever block they are meant in. The other block must have started and
 * made its barrier, and must not end before it knows that all this is over: a cluster_sync at either end ensures both.
 * Sources: PTX ISA 9.0, cp.async.bulk, cp.async.bulk.tensor, mapa, mbarrier.arrive, mbarrier.try_wait; CUDA C++
 * Programming Guide, "Distributed Shared Memory".
 */
// clang-format on
#ifndef TESTS_SEEDS_CLUSTER_CUH
#define TESTS_SEEDS_CLUSTER_CUH

#include "kernels/cuda/device/tma.cuh"

#ifndef __CUDACC__
#include "tests/softgpu/cluster_model.hh"
#else

/* Returns the address of p in that block of the cluster. */
DEVICE uint32_t cluster_address(const void *p, uint32_t block)
{
	uint32_t address;

	asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(p)), "r"(block));
	return address;
}

/* mask: bit i stands for block i of the cluster, and need not include the issuing block. rank is 1 to 5. */
DEVICE void load_tile_multicast(void *tile, const CUtensorMap *map, uint32_t rank, const int32_t *c,
                                barrier *b, uint16_t mask)
{
#define LOAD(dims, coordinates, ...)                                                           \
	asm volatile("cp.async.bulk.tensor." dims                                              \
	             ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"               \
	             ".multicast::cluster [%0], [%1, {" coordinates "}], [%2], %3;" ::"r"(to), \
	             "l"(map), "r"(on), "h"(mask), __VA_ARGS__                                 \
	             : "memory")
	uint32_t to = shared_address(tile), on = shared_address(b);

	switch (rank) {
	case 1:
		LOAD("1d", "%4", "r"(c[0]));
		break;
	case 2:
		LOAD("2d", "%4, %5", "r"(c[0]), "r"(c[1]));
		break;
	case 3:
		LOAD("3d", "%4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]));
		break;
	case 4:
		LOAD("4d", "%4, %5, %6, %7", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
		break;
	default:
		LOAD("5d", "%4, %5, %6, %7, %8", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
		break;
	}
#undef LOAD
}

/* bytes, to and from are multiples of 16. */
DEVICE void load_bulk_multicast(void *to, const void *from, uint32_t bytes, barrier *b, uint16_t mask)
{
	asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
	             "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
	             "l"(from), "r"(bytes), "r"(shared_address(b)), "h"(mask)
	             : "memory");
}

/* The same alignment applies. to and b are addresses in the block that receives the bytes. */
DEVICE void copy_bulk(void *to, const void *from, uint32_t bytes, barrier *b, uint32_t block)
{
	asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
	             "[%0], [%1], %2, [%3];" ::"r"(cluster_address(to, block)),
	             "r"(shared_address(from)), "r"(bytes), "r"(cluster_address(b, block))
	             : "memory");
}

DEVICE void barrier_arrive_block(barrier *b, uint32_t block)
{
	asm volatile(
	    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(cluster_address(b, block))
	    : "memory");
}

DEVICE void barrier_wait_cluster(barrier *b, uint32_t parity)
{
	asm volatile("{\n"
	             ".reg .pred done;\n"
	             "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
	             "@!done bra again;\n"
	             "}\n" ::"r"(shared_address(b)),
	             "r"(parity)
	             : "memory");
}

#endif
#endif
