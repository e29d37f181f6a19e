/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/* The Tensor Memory Accelerator and its barriers, one small function an instruction: the only file with PTX,
 * but for tests/seeds/cluster.cuh, whose instructions no kernel uses.
 *
 * Compiled for the host (no nvcc), the same functions come from tma_model.hh, a model of the unit in software
 * that tests bring; kernels are written against this list and nothing else.
 *
 *   tile_read<T>, tile_write<T>   ordinary accesses of shared memory that the unit also touches
 *   tile_read_around<T>           the same, of bytes of which some are of no use: those may never have been written
 *   tile_max, global_max          the larger of what is there and a value is there from now on, by any number of
 *                                 threads at a time
 *   barrier_*                     an mbarrier: arrivals and bytes (PTX ISA, "mbarrier"); phases start at parity 0
 *   cluster_sync, cluster_rank    the blocks of a cluster
 *   grid_launch_dependents        the next grid of the stream may start beside this one
 *   grid_wait                     until the grids before this one have ended; comes before any access of global memory
 *   load_tile, load_bulk          global -> shared, complete on a barrier; of a load_bulk whose addresses differ
 *                                 modulo 128, most lines take two requests to the L2
 *   store_tile, store_bulk        shared -> global, complete by groups of the thread that issued them
 *   fence_proxy_async             makes this thread's tile_writes visible to the unit; before a store, in every
 *                                 thread that wrote, followed by a barrier with the one that stores
 *   global_*                      accesses of global memory
 *   *_rounded                     arithmetic that is not fused
 *   *_pair, *_numbers             numbers to the bits of two small ones, and back
 *
 * Coordinates are elements, innermost first. A load may take negative ones and ones past the end (zeros
 * come); a store leaves out what lies outside of the tensor. Sources: PTX ISA 9.0, cp.async.bulk,
 * cp.async.bulk.tensor and griddepcontrol; CUDA C++ Programming Guide, 10.29.
 */
// clang-format on
#ifndef KERNELS_CUDA_DEVICE_TMA_CUH
#define KERNELS_CUDA_DEVICE_TMA_CUH

#include <stdint.h>

#ifndef __CUDACC__
#include "tma_model.hh"
#else

#include <cuda.h>

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE                  static __device__ __forceinline__
#define DEVICE_CALL             static __device__ __noinline__
#define DEVICE_MEMBER           __device__ __forceinline__
#define GRID_CONSTANT           __grid_constant__

/* The block's dynamic shared memory, aligned to the longest swizzle pattern. */
#define DYNAMIC_SHARED(name)    extern __shared__ __align__(1024) unsigned char name[]

struct barrier {
	uint64_t word;
};

DEVICE uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

template <typename T> DEVICE T tile_read(const void *p)
{
	return *(const T *)p;
}

template <typename T> DEVICE T tile_read_around(const void *p, bool whole)
{
	return *(const T *)p;
}

template <typename T> DEVICE void tile_write(void *p, T value)
{
	*(T *)p = value;
}

/* What is there and a value: the larger one, by any number of threads at a time. */
DEVICE void tile_max(void *p, uint32_t value)
{
	atomicMax((uint32_t *)p, value);
}

/* ---- Clusters --------------------------------------------------------------------------------------- */

/* All threads of the cluster's blocks. */
DEVICE void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
	             "barrier.cluster.wait.acquire.aligned;" ::
	                 : "memory");
}

/* This block's number in it. */
DEVICE uint32_t cluster_rank()
{
	uint32_t rank;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

/* ---- Grids of a stream --------------------------------------------------------------------------------
 *
 * A grid's blocks may start when all blocks of the grid before it have ended (launch.c), or have said that
 * they may. What a kernel does before it touches memory, and its launch, then take no time of their own; but
 * blocks that start too early take the place of others, and leave the multiprocessors unevenly busy: only
 * tiles of many axes say so, when their loads have arrived. Each thread that touches global memory waits
 * first; so a grid ends after those before it, and to wait for it is to wait for them all. */

/* Lets the next grid's blocks start where there is room, once all of this one's have got here or ended. */
DEVICE void grid_launch_dependents()
{
	asm volatile("griddepcontrol.launch_dependents;");
}

/* Until the grids before this one have ended; this thread sees what they have written. */
DEVICE void grid_wait()
{
	asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* ---- Barriers --------------------------------------------------------------------------------------- */

DEVICE void barrier_init(barrier *b, uint32_t arrivals)
{
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals)
	             : "memory");
}

/* After the last barrier_init, by the thread that did them: the unit and the cluster see them. A
 * __syncthreads() (or a cluster barrier) follows. */
DEVICE void barrier_init_fence()
{
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void barrier_inval(barrier *b)
{
	asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(b)) : "memory");
}

DEVICE void barrier_arrive(barrier *b)
{
	asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

/* Arrives, and has the phase wait for bytes more; before the loads that bring them. */
DEVICE void barrier_arrive_expect(barrier *b, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
	             "r"(bytes)
	             : "memory");
}

/* Whether the phase of that parity has ended; true lets its bytes be read. */
DEVICE bool barrier_test(barrier *b, uint32_t parity)
{
	uint32_t done;

	asm volatile("{\n"
	             ".reg .pred ended;\n"
	             "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
	             "selp.u32 %0, 1, 0, ended;\n"
	             "}\n"
	             : "=r"(done)
	             : "r"(shared_address(b)), "r"(parity)
	             : "memory");
	return done;
}

/* Waits for the end of the phase of that parity. */
DEVICE void barrier_wait(barrier *b, uint32_t parity)
{
	asm volatile("{\n"
	             ".reg .pred done;\n"
	             "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
	             "@!done bra again;\n"
	             "}\n" ::"r"(shared_address(b)),
	             "r"(parity)
	             : "memory");
}

/* ---- Loads ------------------------------------------------------------------------------------------- */

DEVICE void tensor_map_prefetch(const CUtensorMap *map)
{
	asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* A tile by its first element's coordinates; rank of them count. */
DEVICE void load_tile(void *tile, const CUtensorMap *map, uint32_t rank, const int32_t *c, barrier *b)
{
	uint32_t to = shared_address(tile), on = shared_address(b);

	switch (rank) {
	case 1:
		asm volatile(
		    "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		    "[%0], [%1, {%3}], [%2];" ::"r"(to),
		    "l"(map), "r"(on), "r"(c[0])
		    : "memory");
		break;
	case 2:
		asm volatile(
		    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		    "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
		    "l"(map), "r"(on), "r"(c[0]), "r"(c[1])
		    : "memory");
		break;
	case 3:
		asm volatile(
		    "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		    "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
		    "l"(map), "r"(on), "r"(c[0]), "r"(c[1]), "r"(c[2])
		    : "memory");
		break;
	case 4:
		asm volatile(
		    "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		    "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
		    "l"(map), "r"(on), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
		    : "memory");
		break;
	default:
		asm volatile(
		    "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
		    "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
		    "l"(map), "r"(on), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4])
		    : "memory");
		break;
	}
}

/* bytes, to and from are multiples of 16. */
DEVICE void load_bulk(void *to, const void *from, uint32_t bytes, barrier *b)
{
	asm volatile(
	    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
		shared_address(to)),
	    "l"(from), "r"(bytes), "r"(shared_address(b))
	    : "memory");
}

/* ---- Stores ------------------------------------------------------------------------------------------ */

DEVICE void store_tile(const CUtensorMap *map, uint32_t rank, const int32_t *c, const void *tile)
{
	uint32_t from = shared_address(tile);

	switch (rank) {
	case 1:
		asm volatile(
		    "cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
		    "r"(from), "r"(c[0])
		    : "memory");
		break;
	case 2:
		asm volatile(
		    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
			map),
		    "r"(from), "r"(c[0]), "r"(c[1])
		    : "memory");
		break;
	case 3:
		asm volatile(
		    "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::
			"l"(map),
		    "r"(from), "r"(c[0]), "r"(c[1]), "r"(c[2])
		    : "memory");
		break;
	case 4:
		asm volatile(
		    "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::
			"l"(map),
		    "r"(from), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
		    : "memory");
		break;
	default:
		asm volatile(
		    "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::
			"l"(map),
		    "r"(from), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4])
		    : "memory");
		break;
	}
}

DEVICE void store_bulk(void *to, const void *from, uint32_t bytes)
{
	asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
	             "r"(shared_address(from)), "r"(bytes)
	             : "memory");
}

/* The stores since the last commit are one group. */
DEVICE void store_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N of this thread's groups have still to read their shared memory. */
template <int N> DEVICE void store_wait_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Until at most N of this thread's groups have still to write. */
template <int N> DEVICE void store_wait()
{
	asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

DEVICE void fence_proxy_async()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Ordinary memory ---------------------------------------------------------------------------------- */

/* A generic access has to find out which memory an address is of; these know. */
template <typename T> DEVICE T global_read(const T *p)
{
	return *(const T *)__cvta_global_to_generic((size_t)p);
}

/* Memory that others write meanwhile: one access, whose value is used however often. */
template <typename T> DEVICE T global_read_once(const T *p)
{
	return *(const volatile T *)p;
}

template <typename T> DEVICE void global_write(T *p, T value)
{
	if constexpr (sizeof(T) == 1)
		asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"((uint32_t)value) : "memory");
	else if constexpr (sizeof(T) == 2)
		asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(value) : "memory");
	else if constexpr (sizeof(T) == 4)
		asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
	else if constexpr (sizeof(T) == 16)
		asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(value.x), "r"(value.y),
		             "r"(value.z), "r"(value.w)
		             : "memory");
	else
		asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(value.x), "r"(value.y)
		             : "memory");
}

/* By any number of threads at a time. */
DEVICE void global_add(uint64_t *p, uint64_t n)
{
	atomicAdd((unsigned long long *)p, (unsigned long long)n);
}

DEVICE void global_max(uint32_t *p, uint32_t value)
{
	atomicMax(p, value);
}

/* The largest of a whole warp's. */
DEVICE uint32_t warp_max(uint32_t value)
{
	return __reduce_max_sync(~0u, value);
}

/* The largest of the 2^bits lanes that begin at a multiple of as many; in a whole warp. */
DEVICE uint32_t group_max(uint32_t value, uint32_t bits)
{
#pragma unroll 1
	for (uint32_t bit = 1; bit < 1u << bits; bit *= 2)
		value = max(value, __shfl_xor_sync(~0u, value, bit));
	return value;
}

/* Of each half of a and b, the larger one. */
DEVICE uint32_t pair_max(uint32_t a, uint32_t b)
{
	return __vmaxu2(a, b);
}

/* The value of lane % 32, in a whole warp. */
DEVICE uint32_t from_lane(uint32_t value, uint32_t lane)
{
	return __shfl_sync(~0u, value, lane);
}

/* Bytes by number out of the eight of b:a (PTX ISA, "prmt"). */
DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
	return __byte_perm(a, b, selector);
}

/* a OP b, rounded by itself whatever follows. */
DEVICE float multiply_rounded(float a, float b)
{
	return __fmul_rn(a, b);
}

DEVICE double multiply_rounded(double a, double b)
{
	return __dmul_rn(a, b);
}

DEVICE float add_rounded(float a, float b)
{
	return __fadd_rn(a, b);
}

DEVICE double add_rounded(double a, double b)
{
	return __dadd_rn(a, b);
}

/* Of numbers that are not NaN: a in the low half, b in the high one, rounded to nearest even and, unless
 * CLAMPS is false, clamped to what is finite. */
DEVICE uint32_t e4m3_pair(float a, float b)
{
	uint16_t pair;

	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
	return pair;
}

DEVICE uint32_t e5m2_pair(float a, float b)
{
	uint16_t pair;

	asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
	return pair;
}

template <bool CLAMPS> DEVICE uint32_t f16_pair(float a, float b)
{
	uint32_t pair;

	if constexpr (CLAMPS)
		asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
	else
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
	return pair;
}

template <bool CLAMPS> DEVICE uint32_t bf16_pair(float a, float b)
{
	uint32_t pair;

	if constexpr (CLAMPS)
		asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
	else
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
	return pair;
}

/* The other way round, exact: a NaN becomes one. */
DEVICE void f16_numbers(uint32_t pair, float *a, float *b)
{
	asm("{ .reg .f16 low, high;\n"
	    "mov.b32 {low, high}, %2;\n"
	    "cvt.f32.f16 %0, low;\n"
	    "cvt.f32.f16 %1, high; }"
	    : "=f"(*a), "=f"(*b)
	    : "r"(pair));
}

DEVICE void e4m3_numbers(uint32_t pair, float *a, float *b)
{
	uint32_t halves;

	asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((uint16_t)pair));
	f16_numbers(halves, a, b);
}

/* The low word of high:low >> (shift & 31) bits. */
DEVICE uint32_t shift_words(uint32_t low, uint32_t high, uint32_t shift)
{
	return __funnelshift_r(low, high, shift);
}

/* The high word of high:low << (shift & 31) bits. */
DEVICE uint32_t shift_words_up(uint32_t low, uint32_t high, uint32_t shift)
{
	return __funnelshift_l(low, high, shift);
}

#endif
#endif
