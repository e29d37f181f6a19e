/* SPDX-License-Identifier: Apache-2.0 */
/* Transposes squares in the registers of one thread. A square has 16 / E rows. A row has W words, which are
 * at most 16 bytes. */
#ifndef KERNELS_CUDA_DEVICE_SQUARE_CUH
#define KERNELS_CUDA_DEVICE_SQUARE_CUH

#include "tma.cuh"

DEVICE uint4 chunk_of_words(const uint32_t (&words)[4])
{
	return make_uint4(words[0], words[1], words[2], words[3]);
}

/* These read two or four words of shared memory. */
DEVICE void read_words(const unsigned char *from, uint32_t (&words)[2])
{
	const uint2 v = tile_read<uint2>(from);

	words[0] = v.x;
	words[1] = v.y;
}

DEVICE void read_words(const unsigned char *from, uint32_t (&words)[4])
{
	const uint4 v = tile_read<uint4>(from);

	words[0] = v.x;
	words[1] = v.y;
	words[2] = v.z;
	words[3] = v.w;
}

/* Transposes 16 / E rows of W words. out[j] gets element j of each row, in the order of the rows. */
template <int E, int W>
DEVICE void transpose_square(const uint32_t (&in)[16 / E][W], uint32_t (&out)[4 * W / E][4])
{
#pragma unroll
	for (int j = 0; j < W; j++) {
#pragma unroll
		for (int q = 0; q < 4; q++) {
			if constexpr (E >= 4) {
				constexpr int words = E / 4;

				if (j % words == 0)
					out[j / words][q] = in[q / words][j + q % words];
			} else if constexpr (E == 2) {
				const uint32_t a = in[2 * q][j], b = in[2 * q + 1][j];

				out[2 * j][q] = pick_bytes(a, b, 0x5410);
				out[2 * j + 1][q] = pick_bytes(a, b, 0x7632);
			} else {
				const uint32_t a = in[4 * q][j], b = in[4 * q + 1][j];
				const uint32_t c = in[4 * q + 2][j], d = in[4 * q + 3][j];
				const uint32_t ab = pick_bytes(a, b, 0x5140), cd = pick_bytes(c, d, 0x5140);
				const uint32_t ab2 = pick_bytes(a, b, 0x7362), cd2 = pick_bytes(c, d, 0x7362);

				out[4 * j][q] = pick_bytes(ab, cd, 0x5410);
				out[4 * j + 1][q] = pick_bytes(ab, cd, 0x7632);
				out[4 * j + 2][q] = pick_bytes(ab2, cd2, 0x5410);
				out[4 * j + 3][q] = pick_bytes(ab2, cd2, 0x7632);
			}
		}
	}
}

#endif
