/* What the kernels without the Tensor Memory Accelerator share: element types, windows, what may be read.
 */
#ifndef KERNELS_CUDA_STRIDED_CUH
#define KERNELS_CUDA_STRIDED_CUH

#include "args.h"
#include "rows.cuh"
#include "tuning.h"

template <int E> struct element;
template <> struct element<1> {
	typedef uint8_t type;
};
template <> struct element<2> {
	typedef uint16_t type;
};
template <> struct element<4> {
	typedef uint32_t type;
};
template <> struct element<8> {
	typedef uint2 type;
};
template <> struct element<16> {
	typedef uint4 type;
};

DEVICE bool in_window(const strided_dim &dim, int64_t index)
{
	return index >= dim.before && index - dim.before < dim.source;
}

DEVICE uint4 pattern_of(const strided_args &args)
{
	return make_uint4(args.pattern[0], args.pattern[1], args.pattern[2], args.pattern[3]);
}

/* The lowest and the highest address of the source's rows: what may be read around a chunk. */
struct source_range {
	uint64_t low;
	uint64_t high;
};

template <int E> DEVICE source_range range_of(const strided_args &args)
{
	source_range range = { args.src, args.src + E };

	for (uint32_t d = 0; d < args.rank; d++) {
		int64_t reach = (args.dim[d].source - 1) * args.dim[d].src;

		if (reach < 0)
			range.low += (uint64_t)reach;
		else
			range.high += (uint64_t)reach;
	}
	return range;
}

/* KERNEL name_1 to name_16, each of which calls body<E>. */
#define BY_ELEMENT(kernel) kernel(1) kernel(2) kernel(4) kernel(8) kernel(16)

#endif
