/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements from one type to another in registers. An element becomes a lane, which is a float32,
 * float64 or int64 and not a lane of a warp, and the lane becomes an element. The formulas are those of
 * kernels/transform/lanes.h, so that the resulting bits are the same as on every other engine. */
#ifndef KERNELS_CUDA_DEVICE_CONVERT_CUH
#define KERNELS_CUDA_DEVICE_CONVERT_CUH

#include <string.h>

#include "args.h"
#include "kernels/cuda/strategy/tuning.h"
#include "many.cuh"
#include "pad.cuh"
#include "rows.cuh"
#include "strided.cuh"
#include "tma.cuh"

/* These repeat enum dtype and enum arithmetic, whose headers are in C. */
enum element_type {
#define DTYPE(NAME, name, size, class) TYPE_##NAME,
#include "proto/dtype.def"
};
enum lane_type { LANE_TYPE_FLOAT32, LANE_TYPE_FLOAT64, LANE_TYPE_INT64 };

template <typename TO, typename FROM> DEVICE TO same_bits(FROM x)
{
	static_assert(sizeof(TO) == sizeof(FROM), "the same bits");
	TO y;

	memcpy(&y, &x, sizeof y);
	return y;
}

/* Converts as C does. A NaN becomes quiet, but keeps its sign and the leading bits of its payload. */
template <typename TO, typename FROM> DEVICE TO lane_as(TO, FROM x)
{
	return (TO)x;
}

DEVICE float lane_as(float, double x)
{
	const uint64_t bits = same_bits<uint64_t>(x);

	if (x == x)
		return (float)x;
	return same_bits<float>((uint32_t)(bits >> 32 & 0x80000000) | 0x7fc00000u |
	                        (uint32_t)(bits >> 29 & 0x003fffff));
}

DEVICE double lane_as(double, float x)
{
	const uint32_t bits = same_bits<uint32_t>(x);

	if (x == x)
		return (double)x;
	return same_bits<double>((uint64_t)(bits & 0x80000000) << 32 | UINT64_C(0x7ff8000000000000) |
	                         (uint64_t)(bits & 0x003fffff) << 29);
}

#define LANE(name)      lane_##name
#define LANE_FN         __device__ __forceinline__
#define LANE_U32        uint32_t
#define LANE_I32        int32_t
#define LANE_F32        float
#define LANE_U64        uint64_t
#define LANE_I64        int64_t
#define LANE_F64        double
#define LANE_MASK32(c)  (-(uint32_t)(c))
#define LANE_MASK64(c)  (-(uint64_t)(c))
#define LANE_BITS32(f)  same_bits<uint32_t>(f)
#define LANE_BITS64(f)  same_bits<uint64_t>(f)
#define LANE_FLOAT32(u) same_bits<float>(u)
#define LANE_FLOAT64(u) same_bits<double>(u)
#define LANE_AS(to, x)  lane_as(to(), x)
#include "kernels/transform/lanes.h"

/* ---- Float32 lanes --------------------------------------------------------------------------------- */

/* Calls use(load). load(bits) returns the lane of an element of S bytes, whose type a float32 can hold. If
 * `lossy` is set, a NaN of bfloat16 loses its payload. */
template <int S, typename USE> DEVICE void with_load(uint32_t type, bool lossy, const USE &use)
{
	if constexpr (S == 1) {
		switch (type) {
		case TYPE_BOOL:
			return use([](uint32_t b) { return b ? 1.0f : 0.0f; });
		case TYPE_UINT8:
			return use([](uint32_t b) { return (float)(int32_t)b; });
		case TYPE_INT8:
			return use([](uint32_t b) { return (float)(int8_t)b; });
		case TYPE_FLOAT8_E4M3FN:
			return use([](uint32_t b) { return same_bits<float>(lane_e4m3_to_f32(b)); });
		default:
			return use([](uint32_t b) { return same_bits<float>(lane_e5m2_to_f32(b)); });
		}
	} else if constexpr (S == 2) {
		switch (type) {
		case TYPE_UINT16:
			return use([](uint32_t b) { return (float)(int32_t)b; });
		case TYPE_INT16:
			return use([](uint32_t b) { return (float)(int16_t)b; });
		case TYPE_FLOAT16:
			return use([](uint32_t b) { return same_bits<float>(lane_f16_to_f32(b)); });
		default:
			if (lossy)
				return use(
				    [](uint32_t b) { return same_bits<float>(lane_bf16_to_f32_quiet(b)); });
			return use([](uint32_t b) { return same_bits<float>(lane_bf16_to_f32(b)); });
		}
	} else {
		use([](uint32_t b) { return same_bits<float>(b); });
	}
}

/* Calls use(pair). pair(a, b) returns the bits of two neighbouring elements of D bytes, which is 1 or 2, with
 * the first element in the low bits. If `clamps` is set, values are clamped to finite ones. */
template <int D, typename USE> DEVICE void with_pair(uint32_t type, bool clamps, const USE &use)
{
	const auto each = [&](const auto &one) {
		use([&](float a, float b) { return one(a) | one(b) << 8 * D; });
	};

	if constexpr (D == 1) {
		switch (type) {
		case TYPE_BOOL:
			return each([](float x) { return (uint32_t)(x != 0); });
		case TYPE_UINT8:
			return each([](float x) { return (uint32_t)lane_f32_to_int(x, 0, 255); });
		case TYPE_INT8:
			return each([](float x) { return (uint32_t)lane_f32_to_int(x, -128, 127) & 0xff; });
		case TYPE_FLOAT8_E4M3FN:
			if (clamps)
				return each(
				    [](float x) { return lane_f32_to_e4m3(same_bits<uint32_t>(x), 1); });
			return each([](float x) { return lane_f32_to_e4m3(same_bits<uint32_t>(x), 0); });
		default:
			if (clamps)
				return each(
				    [](float x) { return lane_f32_to_e5m2(same_bits<uint32_t>(x), 1); });
			return each([](float x) { return lane_f32_to_e5m2(same_bits<uint32_t>(x), 0); });
		}
	} else {
		switch (type) {
		case TYPE_UINT16:
			return each([](float x) { return (uint32_t)lane_f32_to_int(x, 0, 65535); });
		case TYPE_INT16:
			return each(
			    [](float x) { return (uint32_t)lane_f32_to_int(x, -32768, 32767) & 0xffff; });
		case TYPE_FLOAT16:
			if (clamps)
				return each(
				    [](float x) { return lane_f32_to_f16(same_bits<uint32_t>(x), 1); });
			return each([](float x) { return lane_f32_to_f16(same_bits<uint32_t>(x), 0); });
		default:
			if (clamps)
				return each(
				    [](float x) { return lane_f32_to_bf16(same_bits<uint32_t>(x), 1); });
			return each([](float x) { return lane_f32_to_bf16(same_bits<uint32_t>(x), 0); });
		}
	}
}

/* ---- Any lane, by its type alone ------------------------------------------------------------------- */

DEVICE uint32_t type_bytes(uint32_t type)
{
	switch (type) {
#define DTYPE(NAME, name, size, class) \
	case TYPE_##NAME:              \
		return size;
#include "proto/dtype.def"
	}
	return 0;
}

/* Returns the lane of an element of S bytes. */
template <int S> DEVICE float lane_load_of(uint32_t bits, uint32_t type, bool lossy)
{
	float lane = 0;

	with_load<S>(type, lossy, [&](const auto &load) { lane = load(bits); });
	return lane;
}

/* Returns the bits of an element of D bytes. */
template <int D> DEVICE uint32_t lane_store_of(float lane, uint32_t type, bool clamps)
{
	uint32_t bits = 0;

	if constexpr (D == 4)
		return (uint32_t)lane_f32_to_f32(same_bits<uint32_t>(lane), clamps);
	else
		with_pair<D>(type, clamps, [&](const auto &pair) { bits = pair(lane, 0.0f); });
	return bits & (D == 1 ? 0xff : 0xffff);
}

DEVICE float lane_load(float, uint64_t bits, uint32_t type, bool lossy)
{
	switch (type_bytes(type)) {
	case 1:
		return lane_load_of<1>((uint32_t)bits, type, lossy);
	case 2:
		return lane_load_of<2>((uint32_t)bits, type, lossy);
	default:
		return lane_load_of<4>((uint32_t)bits, type, lossy);
	}
}

DEVICE uint64_t lane_store(float lane, uint32_t type, bool clamps)
{
	switch (type_bytes(type)) {
	case 1:
		return lane_store_of<1>(lane, type, clamps);
	case 2:
		return lane_store_of<2>(lane, type, clamps);
	default:
		return lane_store_of<4>(lane, type, clamps);
	}
}

/* Returns the lane of an element. If `lossy` is set, an integer of 64 bits is rounded to odd. */
DEVICE double lane_load(double, uint64_t bits, uint32_t type, bool lossy)
{
	switch (type) {
	case TYPE_BOOL:
		return bits ? 1 : 0;
	case TYPE_UINT8:
	case TYPE_UINT16:
	case TYPE_UINT32:
	case TYPE_UINT64:
		return (double)(lossy ? lane_u64_to_odd(bits) : bits);
	case TYPE_INT8:
		return (double)(int8_t)bits;
	case TYPE_INT16:
		return (double)(int16_t)bits;
	case TYPE_INT32:
		return (double)(int32_t)bits;
	case TYPE_INT64:
		return (double)(int64_t)(lossy ? lane_i64_to_odd(bits) : bits);
	case TYPE_FLOAT16:
		return same_bits<double>(lane_f16_to_f64(bits));
	case TYPE_FLOAT64:
		return same_bits<double>(bits);
	default:
		return lane_as(double(), lane_load(float(), bits, type, false));
	}
}

DEVICE uint64_t lane_store(double x, uint32_t type, bool clamps)
{
	switch (type) {
	case TYPE_BOOL:
		return x != 0;
	case TYPE_UINT8:
		return (uint64_t)lane_f64_to_int(x, 0, UINT8_MAX);
	case TYPE_INT8:
		return (uint64_t)lane_f64_to_int(x, INT8_MIN, INT8_MAX);
	case TYPE_UINT16:
		return (uint64_t)lane_f64_to_int(x, 0, UINT16_MAX);
	case TYPE_INT16:
		return (uint64_t)lane_f64_to_int(x, INT16_MIN, INT16_MAX);
	case TYPE_UINT32:
		return (uint64_t)lane_f64_to_int(x, 0, UINT32_MAX);
	case TYPE_INT32:
		return (uint64_t)lane_f64_to_int(x, INT32_MIN, INT32_MAX);
	case TYPE_UINT64:
		return lane_f64_to_u64(x);
	case TYPE_INT64:
		return (uint64_t)lane_f64_to_i64(x);
	case TYPE_FLOAT8_E4M3FN:
		return lane_f32_to_e4m3(lane_f64_to_odd_f32(x), clamps);
	case TYPE_FLOAT8_E5M2:
		return lane_f32_to_e5m2(lane_f64_to_odd_f32(x), clamps);
	case TYPE_FLOAT16:
		return lane_f32_to_f16(lane_f64_to_odd_f32(x), clamps);
	case TYPE_BFLOAT16:
		return lane_f32_to_bf16(lane_f64_to_odd_f32(x), clamps);
	case TYPE_FLOAT32:
		return lane_f64_to_f32(x, clamps);
	default:
		return lane_f64_to_f64(x, clamps);
	}
}

/* Returns the lane of an element. A value above INT64_MAX becomes INT64_MAX, which gives the right result for
 * every type but uint64. */
DEVICE int64_t lane_load(int64_t, uint64_t bits, uint32_t type, bool)
{
	switch (type) {
	case TYPE_BOOL:
		return bits != 0;
	case TYPE_INT8:
		return (int8_t)bits;
	case TYPE_INT16:
		return (int16_t)bits;
	case TYPE_INT32:
		return (int32_t)bits;
	case TYPE_UINT64:
		return bits > INT64_MAX ? INT64_MAX : (int64_t)bits;
	default:
		return (int64_t)bits;
	}
}

DEVICE uint64_t lane_store(int64_t x, uint32_t type, bool)
{
	switch (type) {
	case TYPE_BOOL:
		return x != 0;
	case TYPE_UINT8:
		return (uint64_t)min(max(x, (int64_t)0), (int64_t)UINT8_MAX);
	case TYPE_INT8:
		return (uint64_t)min(max(x, (int64_t)INT8_MIN), (int64_t)INT8_MAX);
	case TYPE_UINT16:
		return (uint64_t)min(max(x, (int64_t)0), (int64_t)UINT16_MAX);
	case TYPE_INT16:
		return (uint64_t)min(max(x, (int64_t)INT16_MIN), (int64_t)INT16_MAX);
	case TYPE_UINT32:
		return (uint64_t)min(max(x, (int64_t)0), (int64_t)UINT32_MAX);
	case TYPE_INT32:
		return (uint64_t)min(max(x, (int64_t)INT32_MIN), (int64_t)INT32_MAX);
	case TYPE_UINT64:
		return (uint64_t)max(x, (int64_t)0);
	default:
		return (uint64_t)x;
	}
}

/* ---- Memory ---------------------------------------------------------------------------------------- */

/* Reads an element of `bytes` bytes by accesses of `unit` bytes, which is 1 or `bytes`. */
DEVICE uint64_t read_bits(uint64_t address, uint32_t bytes, uint32_t unit)
{
	uint64_t bits = 0;

	if (unit == bytes) {
		switch (bytes) {
		case 1:
			return global_read((const uint8_t *)address);
		case 2:
			return global_read((const uint16_t *)address);
		case 4:
			return global_read((const uint32_t *)address);
		default:
			return global_read((const uint64_t *)address);
		}
	}
	for (uint32_t i = 0; i < bytes; i++)
		bits |= (uint64_t)global_read((const uint8_t *)(address + i)) << 8 * i;
	return bits;
}

DEVICE void write_bits(uint64_t address, uint64_t bits, uint32_t bytes, uint32_t unit)
{
	if (unit == bytes) {
		switch (bytes) {
		case 1:
			return global_write((uint8_t *)address, (uint8_t)bits);
		case 2:
			return global_write((uint16_t *)address, (uint16_t)bits);
		case 4:
			return global_write((uint32_t *)address, (uint32_t)bits);
		default:
			return global_write((uint2 *)address,
			                    make_uint2((uint32_t)bits, (uint32_t)(bits >> 32)));
		}
	}
	for (uint32_t i = 0; i < bytes; i++)
		global_write((uint8_t *)(address + i), (uint8_t)(bits >> 8 * i));
}

/* ---- Arithmetic ------------------------------------------------------------------------------------ */

DEVICE uint32_t quiet_bit(float)
{
	return 0x00400000;
}

DEVICE uint64_t quiet_bit(double)
{
	return UINT64_C(0x0008000000000000);
}

DEVICE uint32_t made_nan(float)
{
	return 0xffc00000;
}

DEVICE uint64_t made_nan(double)
{
	return UINT64_C(0xfff8000000000000);
}

/* Returns r, which was calculated from a and b. If r is NaN, it returns what x86 would: the first NaN among a
 * and b, made quiet, or, if both are numbers, the NaN that x86 makes of these. */
template <typename LANE_> DEVICE LANE_ mended(LANE_ r, LANE_ a, LANE_ b)
{
	using bits = decltype(quiet_bit(r));

	if (r == r)
		return r;
	if (a == a && b == b)
		return same_bits<LANE_>(made_nan(r));
	return same_bits<LANE_>((bits)(same_bits<bits>(a == a ? b : a) | quiet_bit(r)));
}

/* Reads a scale or a bias as lanes. It keeps the last value that it read, because neighbours often share
 * one. */
template <typename LANE_> struct operand_lanes {
	const convert_operand &operand;
	uint64_t held;
	LANE_ lane;

	DEVICE_MEMBER explicit operand_lanes(const convert_operand &from)
	    : operand(from), held(0), lane(lane_as(LANE_(), from.number))
	{
	}

	/* Returns the lane of the tensor's element at this address, or of the number if there is no tensor.
	 */
	DEVICE_MEMBER LANE_ at(uint64_t address)
	{
		if (operand.address && address != held) {
			const uint64_t bits = read_bits(address, operand.bytes, operand.unit);

			held = address;
			lane = operand.bytes == 8 ? lane_as(LANE_(), same_bits<double>(bits))
			                          : lane_as(LANE_(), same_bits<float>((uint32_t)bits));
		}
		return lane;
	}
};

DEVICE int64_t calculated(const convert_args &, int64_t lane, operand_lanes<int64_t> &,
                          operand_lanes<int64_t> &, uint64_t, uint64_t)
{
	return lane;
}

/* Returns lane * scale + bias. The product and the sum are rounded separately. */
template <typename LANE_>
DEVICE LANE_ calculated(const convert_args &args, LANE_ lane, operand_lanes<LANE_> &scale,
                        operand_lanes<LANE_> &bias, uint64_t scale_at, uint64_t bias_at)
{
	if (args.scale.bytes) {
		const LANE_ by = scale.at(scale_at);

		lane = mended(multiply_rounded(lane, by), lane, by);
	}
	if (args.bias.bytes) {
		const LANE_ by = bias.at(bias_at);

		lane = mended(add_rounded(lane, by), lane, by);
	}
	return lane;
}

/* ---- Exact casts ----------------------------------------------------------------------------------- */

/* Returns whether a lane of this conversion holds the exact value of an integer of 64 bits. It returns true
 * for other types. */
DEVICE bool is_held(const convert_args &args, uint64_t bits)
{
	if (args.from != TYPE_INT64 && args.from != TYPE_UINT64)
		return true;
	if (args.lane == LANE_TYPE_INT64)
		return args.from == TYPE_INT64 || bits <= INT64_MAX;
	if (args.from == TYPE_UINT64) {
		const double value = (double)bits;

		return value < 0x1p64 && (uint64_t)value == bits;
	}
	const double value = (double)(int64_t)bits;

	return value < 0x1p63 && (int64_t)value == (int64_t)bits;
}

/* Returns whether a lane and the lane of its converted value differ. All NaN count as one value. */
template <typename LANE_> DEVICE bool are_different(LANE_ lane, LANE_ back)
{
	return lane != back && (lane == lane || back == back);
}

/* Returns whether a converted element has another value than before. `bits` is the element, `lane` its lane
 * after the arithmetic, and `out` the converted element. */
template <typename LANE_>
DEVICE bool is_changed(const convert_args &args, uint64_t bits, LANE_ lane, uint64_t out)
{
	return are_different(lane, lane_load(LANE_(), out, args.to, false)) ||
	       (!args.scale.bytes && !args.bias.bytes && !is_held(args, bits));
}

DEVICE void add_changed(const convert_args &args, uint32_t changed)
{
	if (changed)
		global_add((uint64_t *)args.changed, changed);
}

/* ---- Places ---------------------------------------------------------------------------------------- */

/* The addresses of an element on both sides. */
struct convert_place {
	uint64_t dst;
	uint64_t src;
	uint64_t scale; /* addresses of the operands' elements */
	uint64_t bias;
	bool there;

	DEVICE_MEMBER void step(const convert_dim &dim, int64_t n)
	{
		dst += (uint64_t)(n * dim.dst);
		step_source(dim, n);
	}

	DEVICE_MEMBER void step_source(const convert_dim &dim, int64_t n)
	{
		src += (uint64_t)(n * dim.src);
		scale += (uint64_t)(n * dim.scale);
		bias += (uint64_t)(n * dim.bias);
	}
};

/* Returns the place of element [0, ..., 0] of the list block that slot `number` belongs to, and makes number
 * the slot's number in that block. `counts` is as in find_item. */
DEVICE convert_place find_place(const convert_args &args, uint64_t &number, bool counts, list_place &block)
{
	block = { args.dst, args.src, args.low, args.high, 0, true };
	if (args.list.by_slots.n > 0)
		find_listed(args.list, entries_in_memory(), number, counts, block);
	return { block.dst, block.src, args.scale.address, args.bias.address, block.there };
}

/* Splits a number into the indices of dimensions `first` to `last` - 1, and calls visit(dim, index) for each
 * of them. */
template <typename VISIT>
DEVICE void visit_convert(const convert_args &args, uint32_t first, uint32_t last, uint64_t number,
                          const VISIT &visit)
{
#pragma unroll 1
	for (uint32_t d = first; d < last; d++) {
		const uint64_t rest = d + 1 < last ? divide_by(number, &args.by[d]) : 0;

		visit(args.dim[d], (int64_t)(number - rest * (uint64_t)args.dim[d].n));
		number = rest;
	}
}

#endif
