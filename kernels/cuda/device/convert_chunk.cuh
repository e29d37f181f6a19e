/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements of the source, which are in registers, to a chunk of 16 bytes of the destination. Numbers
 * are converted by the machine's instructions. A chunk that has a NaN, or a value that these instructions
 * would treat differently from the cast, is converted element by element with the formulas of convert.cuh. A
 * "lane" is a number under conversion (convert.cuh). */
#ifndef KERNELS_CUDA_DEVICE_CONVERT_CHUNK_CUH
#define KERNELS_CUDA_DEVICE_CONVERT_CHUNK_CUH

#include "convert.cuh"

/* These get and set element i of words that hold elements as they lie in memory. An element must be 0 before
 * raw_set. */
template <int S> DEVICE uint32_t raw_get(const uint32_t *raw, int i)
{
	if constexpr (S == 4)
		return raw[i];
	else
		return raw[i * S / 4] >> i * S % 4 * 8 & (S == 1 ? 0xff : 0xffff);
}

template <int S> DEVICE void raw_set(uint32_t *raw, int i, uint32_t bits)
{
	if constexpr (S == 4)
		raw[i] = bits;
	else
		raw[i * S / 4] |= bits << i * S % 4 * 8;
}

/* Reads an element of S bytes that lies at a multiple of S. */
template <int S> DEVICE uint32_t read_whole(uint64_t address)
{
	if constexpr (S == 1)
		return global_read((const uint8_t *)address);
	else if constexpr (S == 2)
		return global_read((const uint16_t *)address);
	else
		return global_read((const uint32_t *)address);
}

template <int S> DEVICE uint32_t read_element(uint64_t address, uint32_t unit)
{
	return unit == S ? read_whole<S>(address) : (uint32_t)read_bits(address, S, 1);
}

/* Reads WORDS words. The address must be a multiple of their size, or of 16 if they take more than 16
 * bytes. */
template <int WORDS> DEVICE void read_aligned_words(uint64_t address, uint32_t *raw)
{
	if constexpr (WORDS == 1) {
		raw[0] = global_read((const uint32_t *)address);
	} else if constexpr (WORDS == 2) {
		const uint2 v = global_read((const uint2 *)address);

		raw[0] = v.x;
		raw[1] = v.y;
	} else {
#pragma unroll
		for (int i = 0; i < WORDS / 4; i++) {
			const uint4 v = global_read((const uint4 *)address + i);

			raw[4 * i] = v.x;
			raw[4 * i + 1] = v.y;
			raw[4 * i + 2] = v.z;
			raw[4 * i + 3] = v.w;
		}
	}
}

template <int WORDS> DEVICE void write_aligned_words(uint64_t address, const uint32_t *words)
{
	if constexpr (WORDS == 1)
		global_write((uint32_t *)address, words[0]);
	else if constexpr (WORDS == 2)
		global_write((uint2 *)address, make_uint2(words[0], words[1]));
	else
		global_write((uint4 *)address, make_uint4(words[0], words[1], words[2], words[3]));
}

/* The places of the operands of a chunk's elements, which are a step apart. */
struct chunk_operands {
	uint64_t scale; /* addresses of the first element's operands */
	uint64_t bias;
	int64_t scale_step;
	int64_t bias_step;
};

/* Returns byte i of a word as a float, less the excess of `zero` over 2^23. The byte becomes the lowest one
 * of a float whose lowest bit is worth 1. The instruction that converts integers would take four times as
 * long. */
DEVICE float byte_number(uint32_t word, int i, float zero)
{
	return same_bits<float>(pick_bytes(word, 0x4b000000, 0x7440 | (uint32_t)i)) - zero;
}

/* Calls use(load). load(word, lanes) sets the lanes of a word of elements of S bytes. A NaN may turn into any
 * other NaN. */
template <int S, typename USE> DEVICE void with_words(uint32_t type, const USE &use)
{
	if constexpr (S == 1) {
		switch (type) {
		case TYPE_BOOL:
			return use([](uint32_t w, float *lane) {
				for (int i = 0; i < 4; i++)
					lane[i] = w >> 8 * i & 0xff ? 1.0f : 0.0f;
			});
		case TYPE_UINT8:
			return use([](uint32_t w, float *lane) {
				for (int i = 0; i < 4; i++)
					lane[i] = byte_number(w, i, 0x1p23f);
			});
		case TYPE_INT8:
			return use([](uint32_t w, float *lane) {
				for (int i = 0; i < 4; i++)
					lane[i] = byte_number(w ^ 0x80808080, i, 0x1p23f + 128);
			});
		case TYPE_FLOAT8_E4M3FN:
			return use([](uint32_t w, float *lane) {
				e4m3_numbers(w & 0xffff, lane, lane + 1);
				e4m3_numbers(w >> 16, lane + 2, lane + 3);
			});
		default: /* an e5m2 is the upper half of a float16 */
			return use([](uint32_t w, float *lane) {
				f16_numbers(pick_bytes(w, 0, 0x1404), lane, lane + 1);
				f16_numbers(pick_bytes(w, 0, 0x3424), lane + 2, lane + 3);
			});
		}
	} else if constexpr (S == 2) {
		switch (type) {
		case TYPE_UINT16:
			return use([](uint32_t w, float *lane) {
				lane[0] = (float)(uint16_t)w;
				lane[1] = (float)(uint16_t)(w >> 16);
			});
		case TYPE_INT16:
			return use([](uint32_t w, float *lane) {
				lane[0] = (float)(int16_t)w;
				lane[1] = (float)(int16_t)(w >> 16);
			});
		case TYPE_FLOAT16:
			return use([](uint32_t w, float *lane) { f16_numbers(w, lane, lane + 1); });
		default:
			return use([](uint32_t w, float *lane) {
				lane[0] = same_bits<float>(w << 16);
				lane[1] = same_bits<float>(w & 0xffff0000);
			});
		}
	} else {
		use([](uint32_t w, float *lane) { *lane = same_bits<float>(w); });
	}
}

/* Calls use(store). store(lanes) returns a word of elements of D bytes. Values are clamped; if `clamps` is
 * not set, types of 16 bits or more get infinities instead. Lanes that are not easy (are_easy) give arbitrary
 * values, which must not be written. */
template <int D, typename USE> DEVICE void with_numbers(uint32_t type, bool clamps, const USE &use)
{
	const auto bytes = [](const float *lane, float least, float most) {
		uint32_t w = 0;

		for (int i = 0; i < 4; i++)
			w |= ((uint32_t)(int32_t)min(max(lane[i], least), most) & 0xff) << 8 * i;
		return w;
	};
	const auto halves = [](const float *lane, float least, float most) {
		return ((uint32_t)(int32_t)min(max(lane[0], least), most) & 0xffff) |
		       (uint32_t)(int32_t)min(max(lane[1], least), most) << 16;
	};

	if constexpr (D == 1) {
		switch (type) {
		case TYPE_BOOL:
			return use([](const float *lane) {
				return (uint32_t)(lane[0] != 0) | (uint32_t)(lane[1] != 0) << 8 |
				       (uint32_t)(lane[2] != 0) << 16 | (uint32_t)(lane[3] != 0) << 24;
			});
		case TYPE_UINT8:
			return use([&](const float *lane) { return bytes(lane, 0, 255); });
		case TYPE_INT8:
			return use([&](const float *lane) { return bytes(lane, -128, 127); });
		case TYPE_FLOAT8_E4M3FN:
			return use([](const float *lane) {
				return e4m3_pair(lane[0], lane[1]) | e4m3_pair(lane[2], lane[3]) << 16;
			});
		default:
			return use([](const float *lane) {
				return e5m2_pair(lane[0], lane[1]) | e5m2_pair(lane[2], lane[3]) << 16;
			});
		}
	} else if constexpr (D == 2) {
		switch (type) {
		case TYPE_UINT16:
			return use([&](const float *lane) { return halves(lane, 0, 65535); });
		case TYPE_INT16:
			return use([&](const float *lane) { return halves(lane, -32768, 32767); });
		case TYPE_FLOAT16:
			if (!clamps)
				return use(
				    [](const float *lane) { return f16_pair<false>(lane[0], lane[1]); });
			return use([](const float *lane) { return f16_pair<true>(lane[0], lane[1]); });
		default:
			if (!clamps)
				return use(
				    [](const float *lane) { return bf16_pair<false>(lane[0], lane[1]); });
			return use([](const float *lane) { return bf16_pair<true>(lane[0], lane[1]); });
		}
	} else {
		const float most = same_bits<float>(clamps ? 0x7f7fffffu : 0x7f800000u);

		use([&](const float *lane) { return same_bits<uint32_t>(min(max(*lane, -most), most)); });
	}
}

/* Returns elements in global memory that are a step apart, one after the other. */
template <int S> struct global_elements {
	static constexpr int bytes = S;

	uint64_t first;
	int64_t step;
	uint32_t unit;

	DEVICE_MEMBER uint32_t take()
	{
		const uint32_t bits = read_element<S>(first, unit);

		first += (uint64_t)step;
		return bits;
	}
};

/* Applies the operands of one element after the other. */
struct operand_cursor {
	operand_lanes<float> scale;
	operand_lanes<float> bias;
	chunk_operands at;

	DEVICE_MEMBER operand_cursor(const convert_args &args, const chunk_operands &first)
	    : scale(args.scale), bias(args.bias), at(first)
	{
	}

	DEVICE_MEMBER float calculate(const convert_args &args, float lane)
	{
		lane = calculated(args, lane, scale, bias, at.scale, at.bias);
		at.scale += (uint64_t)at.scale_step;
		at.bias += (uint64_t)at.bias_step;
		return lane;
	}
};

DEVICE operand_cursor cursor_of(const convert_args &args, const chunk_operands &at)
{
	return { args, at };
}

/* Converts `count` elements of a chunk one by one, because not all of its lanes are easy (are_easy).
 * `elements` provides its elements again. Returns how many values have changed. The arguments are passed by
 * value, because otherwise every chunk would have to store them in memory to have an address. */
template <int D, typename ELEMENTS, typename OPERANDS>
DEVICE_CALL uint32_t convert_exactly(const convert_args &args, uint64_t dst, int count, OPERANDS at,
                                     ELEMENTS elements)
{
	auto operands = cursor_of(args, at);
	uint32_t changed = 0;

#pragma unroll 1
	for (int i = 0; i < count; i++) {
		const float lane = operands.calculate(
		    args, lane_load_of<ELEMENTS::bytes>(elements.take(), args.from, args.lossy));
		const uint32_t bits = lane_store_of<D>(lane, args.to, args.clamps);

		changed += args.changed && are_different(lane, lane_load_of<D>(bits, args.to, false));
		write_bits(dst, bits, D, D);
		dst += D;
	}
	return changed;
}

/* Returns the number of type T at an address. If numbers do not lie at multiples of their size, this returns
 * some number nearby; no lane counts as easy then. */
template <typename T> DEVICE float number_at(uint64_t address)
{
	return (float)global_read((const T *)(address & ~(uint64_t)(sizeof(T) - 1)));
}

/* Applies op(lane, operand) to N lanes, with one operand for all. A NaN may lose its payload; such a lane is
 * not easy. */
template <int N, typename OP>
DEVICE void calculate_same(float *lane, const convert_operand &operand, uint64_t address, const OP &op)
{
	if (!operand.bytes)
		return;
	const float by = !operand.address     ? (float)operand.number
	                 : operand.bytes == 8 ? number_at<double>(address)
	                                      : number_at<float>(address);

#pragma unroll
	for (int i = 0; i < N; i++)
		lane[i] = op(lane[i], by);
}

/* Applies op to N lanes with operands of type T that are a step apart. The first `skip` lanes and those after
 * the next `count` are not needed, and get an operand that exists. */
template <typename T, int N, typename OP>
DEVICE void calculate_each(float *lane, uint64_t address, int64_t step, int skip, int count, const OP &op)
{
#pragma unroll
	for (int i = 0; i < N; i++) {
		const int64_t at = min(max(i - skip, 0), count - 1);

		lane[i] = op(lane[i], number_at<T>(address + (uint64_t)(at * step)));
	}
}

template <int N, typename OP>
DEVICE void calculate_lanes(float *lane, const convert_operand &operand, uint64_t address, int64_t step,
                            int skip, int count, const OP &op)
{
	if (!operand.address || step == 0)
		calculate_same<N>(lane, operand, address, op);
	else if (operand.bytes == 8)
		calculate_each<double, N>(lane, address, step, skip, count, op);
	else
		calculate_each<float, N>(lane, address, step, skip, count, op);
}

/* Multiplies N lanes by a scale and adds a bias; each is the same for all of them. */
template <int N>
DEVICE void calculate_row(const convert_args &args, float *lane, uint64_t scale, uint64_t bias)
{
	calculate_same<N>(lane, args.scale, scale, [](float a, float b) { return multiply_rounded(a, b); });
	calculate_same<N>(lane, args.bias, bias, [](float a, float b) { return add_rounded(a, b); });
}

/* Multiplies N lanes by scales and adds biases; each lane may have its own. */
template <int N>
DEVICE void calculate_chunk(const convert_args &args, float *lane, const chunk_operands &at, int skip,
                            int count)
{
	calculate_lanes<N>(lane, args.scale, at.scale, at.scale_step, skip, count,
	                   [](float a, float b) { return multiply_rounded(a, b); });
	calculate_lanes<N>(lane, args.bias, at.bias, at.bias_step, skip, count,
	                   [](float a, float b) { return add_rounded(a, b); });
}

/* Returns whether with_numbers converts every lane as the cast does. */
template <int N> DEVICE bool are_easy(const convert_args &args, const float *lane)
{
	bool are = true;

#pragma unroll
	for (int i = 0; i < N; i++)
		are = are && fabsf(lane[i]) <= args.most;
	return are;
}

/* Converts and writes the elements of a chunk that belong to the row; raw has 16 / D elements of S bytes. If
 * not all lanes are easy, it writes nothing and returns false. The caller then has to call convert_exactly.
 * This function does not do so itself, because raw would occupy registers meanwhile. */
template <int S, int D, typename OPERANDS>
DEVICE bool convert_chunk(const convert_args &args, const row_chunk &c, const uint32_t *raw,
                          const OPERANDS &at)
{
	constexpr int n = 16 / D;
	const int skip = (int)(c.skip / D), count = (int)(c.last - c.first);
	float lane[n];
	uint32_t out[4];

	with_words<S>(args.from, [&](const auto &load) {
#pragma unroll
		for (int w = 0; w < n * S / 4; w++)
			load(raw[w], lane + w * (4 / S));
	});
	calculate_chunk<n>(args, lane, at, skip, count);
	if (!are_easy<n>(args, lane))
		return false;
	with_numbers<D>(args.to, args.clamps, [&](const auto &store) {
#pragma unroll
		for (int w = 0; w < 4; w++)
			out[w] = store(lane + w * (4 / D));
	});
	chunk_write<D>(c, make_uint4(out[0], out[1], out[2], out[3]));
	return true;
}

#endif
