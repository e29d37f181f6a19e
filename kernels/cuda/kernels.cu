/* All kernels, one image. */
#include "tile_copy.cu"
#include "tile_transpose.cu"
#include "strided.cu"
#include "fill.cu"
