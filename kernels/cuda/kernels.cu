/* All kernels, one image. */
#include "tile_copy.cu"
#include "tile_pad.cu"
#include "tile_transpose.cu"
#include "strided_rows.cu"
#include "strided_tiles.cu"
#include "strided_gather.cu"
#include "strided_channels.cu"
#include "fill.cu"
