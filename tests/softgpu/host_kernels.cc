/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's kernels, compiled for the host from their own sources. */
#include "kernels/cuda/device/tile_copy.cu"
#include "kernels/cuda/device/tile_pad.cu"
#include "kernels/cuda/device/tile_transpose.cu"
#include "kernels/cuda/device/tile_permute.cu"
#include "kernels/cuda/device/tile_pieces.cu"
#include "kernels/cuda/device/tile_squares.cu"
#include "kernels/cuda/device/tile_words.cu"
#include "kernels/cuda/device/strided_rows.cu"
#include "kernels/cuda/device/strided_elements.cu"
#include "kernels/cuda/device/strided_gather.cu"
#include "kernels/cuda/device/strided_channels.cu"
#include "kernels/cuda/device/many_short.cu"
#include "kernels/cuda/device/many_tiles.cu"
#include "kernels/cuda/device/convert_elements.cu"
#include "kernels/cuda/device/convert_units.cu"
#include "kernels/cuda/device/convert_chunks.cu"
#include "kernels/cuda/device/convert_tiles.cu"
#include "kernels/cuda/device/convert_turned.cu"
#include "kernels/cuda/device/convert_channels.cu"
#include "kernels/cuda/device/amax_units.cu"
#include "kernels/cuda/device/amax_tiles.cu"
#include "kernels/cuda/device/amax_boxes.cu"
#include "kernels/cuda/device/fill.cu"
#include "kernels/cuda/device/blocks_rows.cu"
#include "kernels/cuda/device/blocks_copy.cu"

#include "host.hh"

extern "C" const struct model_kernel model_own_kernels[] = {
#define KERNEL(name, args) HOST_KERNEL(name, args)
#include "kernels/cuda/launch/kernels.def"
	{ nullptr, 0, 0, nullptr },
};

/* Returns whether path ends with the file's name. */
static constexpr bool is_path_of(const char *path, const char *file)
{
	const char *p = path, *f = file;

	while (*p)
		p++;
	while (*f)
		f++;
	while (f > file && p > path)
		if (*--f != *--p)
			return false;
	return f == file && p > path && p[-1] == '/';
}

/* Each device image provides the kernels that kernels.def lists below its UNIT. */
namespace no_unit
{
#define UNIT(name)       \
	}                \
	namespace of_##name \
	{                \
	constexpr char unit[] = #name ".cu";
#define KERNEL(name, args) \
	static_assert(is_path_of(host_kernel<name>::file, unit), "kernels.def has it below another file");
#include "kernels/cuda/launch/kernels.def"
}
