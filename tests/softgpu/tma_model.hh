/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces tma.cuh when kernels are compiled for the host: the same names, implemented by the software model,
 * and the parts of the CUDA language that the kernels use.
 *
 * A kernel is a function that the fiber of each of its threads calls. Only dynamic shared memory exists: a
 * __shared__ variable could not be distinct in each of a cluster's blocks, which run concurrently.
 */
#ifndef TESTS_SOFTGPU_TMA_MODEL_HH
#define TESTS_SOFTGPU_TMA_MODEL_HH

#include <cuda.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <vector_functions.h>
#include <vector_types.h>

#include "tests/softgpu/model/instructions.h"

/* ---- The language ---------------------------------------------------------------------------------- */

#undef __device__
#undef __forceinline__
#undef __global__
#undef __shared__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __global__

/* Carries the launch bound in the kernel's type, as a first parameter of no other use, so that the table of
 * kernels can read it. KERNEL and GRID_CONSTANT each read the counter, so it advances by two from one kernel
 * to the next. */
template <int NUMBER> struct kernel_bound;
#define KERNEL(threads_, blocks_) KERNEL_NUMBERED(threads_, __COUNTER__)
#define KERNEL_NUMBERED(threads_, number)                     \
	template <> struct kernel_bound<number> {             \
		static constexpr uint32_t threads = threads_; \
		static constexpr const char *file = __FILE__; \
	};                                                    \
	static void
#define GRID_CONSTANT        kernel_bound<__COUNTER__ - 1>,
#define DEVICE               static inline
#define DEVICE_CALL          static
#define DEVICE_MEMBER        inline
#define DYNAMIC_SHARED(name) unsigned char *const name = model_dynamic_shared()

/* Default argument: the line of the call. The model matches the instructions of a warp's lanes by this line
 * and by the iterations of the enclosing loops, which is why the macro for below reports every iteration. */
#define CALLER_LINE uint32_t line = __builtin_LINE()

class loop_iteration
{
	const bool counted = model_is_counting;

      public:
	explicit loop_iteration(uint32_t loop)
	{
		if (counted)
			model_iteration_begin(loop);
	}
	~loop_iteration()
	{
		if (counted)
			model_iteration_end();
	}
};

// clang-format off
#define for(...) \
	for (__VA_ARGS__) \
		if (const loop_iteration loop_iteration_(__COUNTER__); false) { \
		} else
// clang-format on

#define threadIdx (model_here->thread)
#define blockIdx  (model_here->block)
#define blockDim  (model_here->block_dim)
#define gridDim   (model_here->grid_dim)

DEVICE void __syncthreads()
{
	model_sync_block();
}

DEVICE void __syncwarp(uint32_t mask = 0xffffffff, CALLER_LINE)
{
	model_sync_warp(mask, line);
}

template <typename T> DEVICE T __ldg(const T *p, CALLER_LINE)
{
	model_global_read(p, sizeof(T), line);
	return *p;
}

/* Atomic without further care: fibers switch only where they wait. */
template <typename T> DEVICE T atomicAdd(T *p, T value)
{
	T old = *p;

	*p = old + value;
	return old;
}

template <typename T> DEVICE T min(T a, T b)
{
	return b < a ? b : a;
}

template <typename T> DEVICE T max(T a, T b)
{
	return a < b ? b : a;
}

/* Like CUDA's: if one operand is a NaN, returns the other. */
DEVICE float min(float a, float b)
{
	return fminf(a, b);
}

DEVICE float max(float a, float b)
{
	return fmaxf(a, b);
}

/* ---- tma.cuh's list -------------------------------------------------------------------------------- */

struct barrier {
	uint64_t word;
};

DEVICE uint32_t shared_address(const void *p)
{
	return (uint32_t)((const unsigned char *)p - model_dynamic_shared());
}

template <typename T> DEVICE T tile_read(const void *p, CALLER_LINE)
{
	T value;

	model_tile_read(p, sizeof(T), true, line);
	memcpy(&value, p, sizeof(T));
	return value;
}

template <typename T> DEVICE T tile_read_around(const void *p, bool whole, CALLER_LINE)
{
	T value;

	model_tile_read(p, sizeof(T), whole, line);
	memcpy(&value, p, sizeof(T));
	return value;
}

template <typename T> DEVICE void tile_write(void *p, T value, CALLER_LINE)
{
	model_tile_write(p, sizeof(T), line);
	memcpy(p, &value, sizeof(T));
}

DEVICE void tile_max(void *p, uint32_t value, CALLER_LINE)
{
	uint32_t before;

	model_tile_combine(p, sizeof(before), line);
	memcpy(&before, p, sizeof(before));
	if (before < value)
		memcpy(p, &value, sizeof(value));
}

DEVICE void cluster_sync()
{
	model_sync_cluster();
}

DEVICE uint32_t cluster_rank()
{
	return model_cluster_rank();
}

/* Does nothing: the model runs one grid after the other. */
DEVICE void grid_launch_dependents()
{
}

DEVICE void grid_wait()
{
	model_grid_wait();
}

DEVICE void barrier_init(barrier *b, uint32_t arrivals)
{
	model_barrier_init(b, arrivals);
}

DEVICE void barrier_init_fence()
{
	model_barrier_init_fence();
}

DEVICE void barrier_inval(barrier *b)
{
	model_barrier_inval(b);
}

DEVICE void barrier_arrive(barrier *b, CALLER_LINE)
{
	model_barrier_arrive(b, line);
}

DEVICE void barrier_arrive_expect(barrier *b, uint32_t bytes, CALLER_LINE)
{
	model_barrier_arrive_expect(b, bytes, line);
}

DEVICE bool barrier_test(barrier *b, uint32_t parity, CALLER_LINE)
{
	return model_barrier_test(b, parity, line);
}

DEVICE void barrier_wait(barrier *b, uint32_t parity, CALLER_LINE)
{
	model_barrier_wait(b, parity, line);
}

DEVICE void tensor_map_prefetch(const CUtensorMap *map)
{
	model_prefetch_map(map);
}

DEVICE void load_tile(void *tile, const CUtensorMap *map, uint32_t rank, const int32_t *c, barrier *b)
{
	model_load_tile(tile, map, rank, c, b);
}

DEVICE void load_bulk(void *to, const void *from, uint32_t bytes, barrier *b)
{
	model_load_bulk(to, from, bytes, b);
}

DEVICE void store_tile(const CUtensorMap *map, uint32_t rank, const int32_t *c, const void *tile)
{
	model_store_tile(map, rank, c, tile);
}

DEVICE void store_bulk(void *to, const void *from, uint32_t bytes)
{
	model_store_bulk(to, from, bytes);
}

DEVICE void store_commit()
{
	model_store_commit();
}

template <int N> DEVICE void store_wait_read()
{
	model_store_wait_read(N);
}

template <int N> DEVICE void store_wait()
{
	model_store_wait(N);
}

DEVICE void fence_proxy_async()
{
	model_fence_proxy_async();
}

template <typename T> DEVICE T global_read(const T *p, CALLER_LINE)
{
	model_global_read(p, sizeof(T), line);
	return *p;
}

template <typename T> DEVICE T global_read_once(const T *p, CALLER_LINE)
{
	model_global_read(p, sizeof(T), line);
	return *(const volatile T *)p;
}

template <typename T> DEVICE void global_write(T *p, T value, CALLER_LINE)
{
	model_global_write(p, sizeof(T), line);
	*p = value;
}

DEVICE void global_add(uint64_t *p, uint64_t n, CALLER_LINE)
{
	model_global_combine(p, sizeof(*p), line);
	atomicAdd(p, n);
}

DEVICE void global_max(uint32_t *p, uint32_t value, CALLER_LINE)
{
	model_global_combine(p, sizeof(*p), line);
	*p = max(*p, value);
}

DEVICE uint32_t from_lane(uint32_t value, uint32_t lane, CALLER_LINE)
{
	return model_shuffle(value, lane, line);
}

DEVICE uint32_t group_max(uint32_t value, uint32_t bits, CALLER_LINE)
{
	for (uint32_t bit = 1; bit < 1u << bits; bit *= 2)
		value = max(value, model_shuffle(value, (threadIdx.x ^ bit) % 32, line));
	return value;
}

DEVICE uint32_t warp_max(uint32_t value, CALLER_LINE)
{
	return group_max(value, 5, line);
}

DEVICE uint32_t pair_max(uint32_t a, uint32_t b)
{
	return max(a & 0xffff, b & 0xffff) | max(a >> 16, b >> 16) << 16;
}

DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
	uint64_t bytes = (uint64_t)b << 32 | a;
	uint32_t picked = 0;

	for (int i = 0; i < 4; i++)
		picked |= (uint32_t)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
	return picked;
}

/* Keeps the product from being fused with a following addition. */
template <typename T> DEVICE T multiply_rounded(T a, T b)
{
	volatile T product = a * b;

	return product;
}

template <typename T> DEVICE T add_rounded(T a, T b)
{
	volatile T sum = a + b;

	return sum;
}

#define LANE(name)      model_lane_##name
#define LANE_FN         inline __attribute__((unused))
#define LANE_U32        uint32_t
#define LANE_I32        int32_t
#define LANE_F32        float
#define LANE_MASK32(c)  (-(uint32_t)(c))
#define LANE_BITS32(f)  model_bits<uint32_t>(f)
#define LANE_FLOAT32(u) model_bits<float>(u)
#define LANE_AS(to, x)  ((to)(x))
template <typename TO, typename FROM> DEVICE TO model_bits(FROM x)
{
	TO y;

	memcpy(&y, &x, sizeof y);
	return y;
}
#include "kernels/transform/lanes.h"
#undef LANE_FN
#undef LANE_MASK32
#undef LANE_BITS32
#undef LANE_FLOAT32
#undef LANE_AS

DEVICE uint32_t e4m3_pair(float a, float b)
{
	return model_lane_f32_to_e4m3(model_bits<uint32_t>(a), 1) |
	       model_lane_f32_to_e4m3(model_bits<uint32_t>(b), 1) << 8;
}

DEVICE uint32_t e5m2_pair(float a, float b)
{
	return model_lane_f32_to_e5m2(model_bits<uint32_t>(a), 1) |
	       model_lane_f32_to_e5m2(model_bits<uint32_t>(b), 1) << 8;
}

template <bool CLAMPS> DEVICE uint32_t f16_pair(float a, float b)
{
	return model_lane_f32_to_f16(model_bits<uint32_t>(a), CLAMPS) |
	       model_lane_f32_to_f16(model_bits<uint32_t>(b), CLAMPS) << 16;
}

template <bool CLAMPS> DEVICE uint32_t bf16_pair(float a, float b)
{
	return model_lane_f32_to_bf16(model_bits<uint32_t>(a), CLAMPS) |
	       model_lane_f32_to_bf16(model_bits<uint32_t>(b), CLAMPS) << 16;
}

DEVICE void f16_numbers(uint32_t pair, float *a, float *b)
{
	*a = model_bits<float>(model_lane_f16_to_f32(pair & 0xffff));
	*b = model_bits<float>(model_lane_f16_to_f32(pair >> 16));
}

DEVICE void e4m3_numbers(uint32_t pair, float *a, float *b)
{
	*a = model_bits<float>(model_lane_e4m3_to_f32(pair & 0xff));
	*b = model_bits<float>(model_lane_e4m3_to_f32(pair >> 8));
}

DEVICE uint32_t shift_words(uint32_t low, uint32_t high, uint32_t shift)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> (shift & 31));
}

DEVICE uint32_t shift_words_up(uint32_t low, uint32_t high, uint32_t shift)
{
	return (uint32_t)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}

#endif
