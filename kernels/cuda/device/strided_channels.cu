/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a few channels that lie together on one side and in separate planes on the other, such as images
 * between NHWC and NCHW.
 *
 * A unit is 16 / E pixels: C consecutive chunks of 16 bytes on the one side, and one chunk of each of C
 * planes on the other. A warp moves 32 units. Neighbouring lanes read and write neighbouring chunks on both
 * sides. The chunks of pixels go through shared memory, and each thread interleaves its own unit in
 * registers.
 */
#include "strided.cuh"

namespace
{

/* Returns the place of a chunk of pixels in shared memory. Units are an odd number of chunks apart there, so
 * that a warp reads all banks. */
template <int C> DEVICE uint32_t chunk_place(uint32_t chunk)
{
	return (chunk / C * (C | 1) + chunk % C) * 16;
}

/* These return, for a byte of a unit in the resulting order, its place in the other order: to_planes for a
 * result in planes, to_pixels for one in pixels. */
template <int E, int C> struct to_planes {
	DEVICE_MEMBER static int from(int byte)
	{
		return (byte % 16 / E * C + byte / 16) * E + byte % E;
	}
};
template <int E, int C> struct to_pixels {
	DEVICE_MEMBER static int from(int byte)
	{
		return byte / E % C * 16 + byte / E / C * E + byte % E;
	}
};

/* Reorders a unit. Each word of the result has its bytes picked out of the words that they come from. */
template <int E, int C, typename ORDER> DEVICE void weave(const uint32_t (&in)[4 * C], uint32_t (&out)[4 * C])
{
#pragma unroll
	for (int w = 0; w < 4 * C; w++) {
		const int a = ORDER::from(4 * w), b = ORDER::from(4 * w + 1), c = ORDER::from(4 * w + 2),
			  d = ORDER::from(4 * w + 3);

		if (E >= 4) {
			out[w] = in[a / 4];
		} else if (E == 2) {
			out[w] =
			    pick_bytes(in[a / 4], in[c / 4], a % 4 * 0x11 + 0x10 + c % 4 * 0x1100 + 0x5400);
		} else {
			uint32_t low = pick_bytes(in[a / 4], in[b / 4], a % 4 + b % 4 * 0x10 + 0x40);
			uint32_t high = pick_bytes(in[c / 4], in[d / 4], c % 4 + d % 4 * 0x10 + 0x40);

			out[w] = pick_bytes(low, high, 0x5410);
		}
	}
}

/* The units that a warp moves: their number, and the addresses of the first one on both sides. */
struct channel_part {
	uint64_t dst;
	uint64_t src;
	uint32_t units;
};

DEVICE channel_part channel_part_of(const strided_args &args, uint64_t number, uint32_t unit_pixels)
{
	uint64_t row = divide_by(number, &args.by_slots);
	const uint64_t first = (number - row * args.by_slots.n) * 32,
		       all = (uint64_t)args.dim[0].n / unit_pixels;
	channel_part part = { args.dst, args.src, all - first < 32 ? (uint32_t)(all - first) : 32 };

	part.dst += first * unit_pixels * (uint64_t)args.dim[0].dst;
	part.src += first * unit_pixels * (uint64_t)args.dim[0].src;
#pragma unroll 1
	for (uint32_t d = 2; d < args.rank; d++) {
		uint64_t q = divide_by(row, &args.by[d]), index = row - q * args.by[d].n;

		row = q;
		part.dst += index * (uint64_t)args.dim[d].dst;
		part.src += index * (uint64_t)args.dim[d].src;
	}
	return part;
}

DEVICE void put_chunk(uint32_t *words, const uint4 &v)
{
	words[0] = v.x;
	words[1] = v.y;
	words[2] = v.z;
	words[3] = v.w;
}

DEVICE uint4 get_chunk(const uint32_t *words)
{
	return make_uint4(words[0], words[1], words[2], words[3]);
}

template <int E, int C>
DEVICE void pixels_to_planes(const strided_args &args, const channel_part &part, unsigned char *shared)
{
	const uint32_t lane = threadIdx.x % 32;
	uint32_t in[4 * C], out[4 * C];

#pragma unroll
	for (int c = 0; c < C; c++)
		put_chunk(in + 4 * c, lane + c * 32 < part.units * C
		                          ? global_read((const uint4 *)part.src + lane + c * 32)
		                          : make_uint4(0, 0, 0, 0));
#pragma unroll
	for (int c = 0; c < C; c++)
		*(uint4 *)(shared + chunk_place<C>(lane + c * 32)) = get_chunk(in + 4 * c);
	__syncwarp();
	if (lane >= part.units)
		return;
#pragma unroll
	for (int c = 0; c < C; c++)
		put_chunk(in + 4 * c, *(const uint4 *)(shared + chunk_place<C>(lane * C + c)));
	weave<E, C, to_planes<E, C>>(in, out);
#pragma unroll
	for (int c = 0; c < C; c++)
		global_write((uint4 *)(part.dst + (uint64_t)(c * args.dim[1].dst)) + lane,
		             get_chunk(out + 4 * c));
}

template <int E, int C>
DEVICE void planes_to_pixels(const strided_args &args, const channel_part &part, unsigned char *shared)
{
	const uint32_t lane = threadIdx.x % 32;
	uint32_t in[4 * C], out[4 * C];

#pragma unroll
	for (int c = 0; c < C; c++)
		put_chunk(
		    in + 4 * c,
		    lane < part.units
			? global_read((const uint4 *)(part.src + (uint64_t)(c * args.dim[1].src)) + lane)
			: make_uint4(0, 0, 0, 0));
	weave<E, C, to_pixels<E, C>>(in, out);
#pragma unroll
	for (int c = 0; c < C; c++)
		*(uint4 *)(shared + chunk_place<C>(lane * C + c)) = get_chunk(out + 4 * c);
	__syncwarp();
#pragma unroll
	for (int c = 0; c < C; c++)
		if (lane + c * 32 < part.units * C)
			global_write((uint4 *)part.dst + lane + c * 32,
			             *(const uint4 *)(shared + chunk_place<C>(lane + c * 32)));
}

template <int E, int C> DEVICE void move_part(const strided_args &args, unsigned char *own, uint64_t number)
{
	if (number >= args.slots)
		return;
	const channel_part part = channel_part_of(args, number, 16 / E);

	grid_wait();
	if (args.dim[0].dst == E)
		pixels_to_planes<E, C>(args, part, own);
	else
		planes_to_pixels<E, C>(args, part, own);
}

template <int E, int C> DEVICE void move_channels(const strided_args &args, unsigned char *shared)
{
	constexpr uint32_t warps = ROWS_THREADS / 32;
	unsigned char *own = shared + threadIdx.x / 32 * chunk_place<C>(32 * C);

	take_turns((uint32_t)((args.slots + warps - 1) / warps), [&](const turn &turn) {
		move_part<E, C>(args, own, (uint64_t)turn.number * warps + threadIdx.x / 32);
	});
}

template <int E> DEVICE void few_channels(const strided_args &args, unsigned char *shared)
{
	switch (args.run) {
	case 2:
		return move_channels<E, 2>(args, shared);
	case 3:
		return move_channels<E, 3>(args, shared);
	default:
		return move_channels<E, 4>(args, shared);
	}
}

template <int E> DEVICE void many_channels(const strided_args &args, unsigned char *shared)
{
	if (args.run == 6)
		move_channels<E, 6>(args, shared);
	else
		move_channels<E, 8>(args, shared);
}

} // namespace

/* There are two kernels, because the registers for many channels would leave room for fewer thread blocks. */
#define STRIDED_CHANNELS(name, e, blocks, move)                                               \
	KERNEL(ROWS_THREADS, blocks) name##_##e(const GRID_CONSTANT struct strided_args args) \
	{                                                                                     \
		DYNAMIC_SHARED(shared);                                                       \
		move(args, shared);                                                           \
	}
#define STRIDED_CHANNELS_BOTH(e)                                                  \
	STRIDED_CHANNELS(strided_few, e, CHANNELS_FEW_BLOCKS(e), few_channels<e>) \
	STRIDED_CHANNELS(strided_many, e, CHANNELS_MANY_BLOCKS(e), many_channels<e>)
STRIDED_CHANNELS_BOTH(1)
STRIDED_CHANNELS_BOTH(2)
STRIDED_CHANNELS_BOTH(4)
STRIDED_CHANNELS_BOTH(8)
