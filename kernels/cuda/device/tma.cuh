/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
/* The Tensor Memory Accelerator (TMA) and its barriers: one small function for each instruction. This is the
 * only file with PTX, apart from tests/seeds/cluster.cuh, whose instructions no kernel uses.
 *
 * When the kernels are compiled for the host (without nvcc), the tests provide the same functions in
 * tma_model.hh, a software model of the TMA. Kernels may use only these functions:
 *
 *   tile_read<T>, tile_write<T>   ordinary accesses to shared memory that the TMA accesses as well
 *   tile_read_around<T>           a read some of whose bytes are not used; those may never have been written
 *   tile_max, global_max          replaces the value in memory by the larger one of it and the argument; any
 *                                 number of threads may do so at the same time
 *   barrier_*                     an mbarrier, which counts arrivals and bytes (PTX ISA, "mbarrier"); the
 *                                 parity of its first phase is 0
 *   cluster_sync, cluster_rank    the thread blocks of a cluster
 *   grid_launch_dependents        allows the stream's next grid to start beside this one
 *   grid_wait                     waits until the grids before this one have ended; required before any access
 *                                 to global memory
 *   load_tile, load_bulk          copy from global to shared memory and complete on a barrier; if the addresses
 *                                 of a load_bulk differ modulo 128, most lines take two requests to the L2
 *   store_tile, store_bulk        copy from shared to global memory and complete by groups of the thread that
 *                                 issued them
 *   fence_proxy_async             makes this thread's tile_writes visible to the TMA; before a store, every
 *                                 thread that wrote calls it and then synchronizes with the one that stores
 *   global_*                      accesses to global memory
 *   *_rounded                     arithmetic that is not fused
 *   *_pair, *_numbers             convert numbers to the bits of two small ones, and back
 *
 * Coordinates are in elements, innermost first. The coordinates of a load may be negative or beyond the end;
 * it then brings zeros. A store leaves out what lies outside the tensor. Sources: PTX ISA 9.0, cp.async.bulk,
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

/* Declares the thread block's dynamic shared memory, aligned to the longest swizzle pattern. */
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

/* Sets the word to the larger one of its value and `value`. Any number of threads may do so at the same
 * time. */
DEVICE void tile_max(void *p, uint32_t value)
{
	atomicMax((uint32_t *)p, value);
}

/* ---- Clusters --------------------------------------------------------------------------------------- */

/* Synchronizes all threads of the cluster's thread blocks. */
DEVICE void cluster_sync()
{
	asm volatile("barrier.cluster.arrive.release.aligned;\n"
	             "barrier.cluster.wait.acquire.aligned;" ::
	                 : "memory");
}

/* Returns the number of this thread block in the cluster. */
DEVICE uint32_t cluster_rank()
{
	uint32_t rank;

	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
	return rank;
}

/* ---- Grids of a stream --------------------------------------------------------------------------------
 *
 * The thread blocks of a grid may start as soon as all blocks of the grid before it have ended (launch.c) or
 * have called grid_launch_dependents. The launch, and what a kernel does before it touches memory, then take
 * no extra time. But blocks that start too early take room from others and leave the multiprocessors unevenly
 * busy. Only the kernels for tiles of many axes therefore call it, when their loads have arrived. Every
 * thread that touches global memory calls grid_wait first. So a grid never ends before those ahead of it, and
 * whoever waits for one grid waits for all before it too.
 */

/* Allows the next grid's thread blocks to start where there is room, once all blocks of this grid have called
 * it or ended. */
DEVICE void grid_launch_dependents()
{
	asm volatile("griddepcontrol.launch_dependents;");
}

/* Waits until the grids before this one have ended. This thread then sees what they have written. */
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

/* Makes the initialized barriers visible to the TMA and the cluster. The thread that initialized them must
 * call it after the last barrier_init, and a __syncthreads() or a cluster barrier must follow. */
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

/* Arrives, and makes the phase wait for this many more bytes. The loads that bring them must come after this
 * call. */
DEVICE void barrier_arrive_expect(barrier *b, uint32_t bytes)
{
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)),
	             "r"(bytes)
	             : "memory");
}

/* Returns whether the phase of that parity has ended. If it has, the phase's bytes may be read. */
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

/* Loads the tile whose first element has the coordinates c[0] to c[rank - 1]. */
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

/* Copies bytes from global to shared memory. The size and both addresses must be multiples of 16. */
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

/* Makes a group of the stores since the last commit. */
DEVICE void store_commit()
{
	asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most N of this thread's groups have yet to read their shared memory. */
template <int N> DEVICE void store_wait_read()
{
	asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Waits until at most N of this thread's groups have yet to write global memory. */
template <int N> DEVICE void store_wait()
{
	asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

DEVICE void fence_proxy_async()
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Ordinary memory ---------------------------------------------------------------------------------- */

/* Reads global memory. A generic access would first have to find out which kind of memory the address is
 * in. */
template <typename T> DEVICE T global_read(const T *p)
{
	return *(const T *)__cvta_global_to_generic((size_t)p);
}

/* Reads memory that others may write meanwhile, by a single access however often the value is used. */
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

/* Adds n to the number at p. Any number of threads may do so at the same time. */
DEVICE void global_add(uint64_t *p, uint64_t n)
{
	atomicAdd((unsigned long long *)p, (unsigned long long)n);
}

DEVICE void global_max(uint32_t *p, uint32_t value)
{
	atomicMax(p, value);
}

/* Returns the largest value of the warp. All lanes must call it. */
DEVICE uint32_t warp_max(uint32_t value)
{
	return __reduce_max_sync(~0u, value);
}

/* Returns the largest value of the lane's group; groups are 2^bits consecutive lanes that begin at a multiple
 * of 2^bits. All lanes of the warp must call it. */
DEVICE uint32_t group_max(uint32_t value, uint32_t bits)
{
#pragma unroll 1
	for (uint32_t bit = 1; bit < 1u << bits; bit *= 2)
		value = max(value, __shfl_xor_sync(~0u, value, bit));
	return value;
}

/* Returns two 16-bit halves, each of which is the larger one of the same halves of a and b. */
DEVICE uint32_t pair_max(uint32_t a, uint32_t b)
{
	return __vmaxu2(a, b);
}

/* Returns the value of lane number lane % 32. All lanes of the warp must call it. */
DEVICE uint32_t from_lane(uint32_t value, uint32_t lane)
{
	return __shfl_sync(~0u, value, lane);
}

/* Returns four bytes of the eight of b:a, which the selector chooses by number (PTX ISA, "prmt"). */
DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
	return __byte_perm(a, b, selector);
}

/* These return a * b or a + b. The result is rounded before the next operation: the two are never fused. */
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

/* These convert two numbers, neither of which may be NaN, to a smaller type, and return them with a in the
 * low half and b in the high half. They round to nearest even and clamp to finite values unless CLAMPS is
 * false. */
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

/* These do the reverse conversion, which is exact; a NaN becomes some NaN. */
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

/* Returns the low word of high:low >> (shift & 31). */
DEVICE uint32_t shift_words(uint32_t low, uint32_t high, uint32_t shift)
{
	return __funnelshift_r(low, high, shift);
}

/* Returns the high word of high:low << (shift & 31). */
DEVICE uint32_t shift_words_up(uint32_t low, uint32_t high, uint32_t shift)
{
	return __funnelshift_l(low, high, shift);
}

#endif
#endif
