/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps. The rules are those of the project's own checker (tensor_map_check); the model encodes the 128
 * bytes. */
#include <stdio.h>

#include "call.h"
#include "kernels/cuda/strategy/tensor_map.h"
#include "softgpu.h"
#include "tests/softgpu/model.h"

#define MAP_ALIGNMENT 64

/* Refuses a layout that breaks a rule with the driver's result. The reason, which the real driver does not
 * give, is written to stderr. */
static CUresult check(const struct tensor_map_layout *layout, uint64_t address)
{
	struct tensor_map_rules rules;
	int n = tensor_map_check(layout, address, &rules);
	for (int i = 0; i < n && i < TENSOR_MAP_MAX_RULES; i++)
		fprintf(stderr, "softgpu: cuTensorMap: %s\n", rules.text[i]);
	return n == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool is_map(const CUtensorMap *map)
{
	return map && (uintptr_t)map % MAP_ALIGNMENT == 0;
}

static CUresult encode(CUtensorMap *ret, struct tensor_map_layout *layout, const void *address,
                       const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
                       const cuuint32_t *element_stride)
{
	if (!is_map(ret) || !address || !dim || !box || !element_stride || layout->rank < 1 ||
	    layout->rank > TENSOR_MAP_MAX_RANK || (layout->rank > 1 && !stride))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < layout->rank; i++) {
		layout->dim[i] = dim[i];
		layout->box[i] = box[i];
		layout->element_stride[i] = element_stride[i];
		if (i > 0)
			layout->stride[i - 1] = stride[i - 1];
	}
	CUresult result = check(layout, (uint64_t)address);
	if (result == CUDA_SUCCESS)
		model_map_encode(ret, layout, (uint64_t)address);
	return result;
}

static CUresult replace(CUtensorMap *map, const void *address)
{
	struct tensor_map_layout layout;
	uint64_t before;
	if (!is_map(map) || !address || !model_map_decode(map, &layout, &before))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = check(&layout, (uint64_t)address);
	if (result == CUDA_SUCCESS)
		model_map_encode(map, &layout, (uint64_t)address);
	return result;
}

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *ret, CUtensorMapDataType type, cuuint32_t rank,
                                        void *address, const cuuint64_t *dim, const cuuint64_t *stride,
                                        const cuuint32_t *box, const cuuint32_t *element_stride,
                                        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill)
{
	struct tensor_map_layout layout = {
		.type = (enum tensor_map_type)type,
		.rank = rank,
		.interleave = (enum tensor_map_interleave)interleave,
		.swizzle = (enum tensor_map_swizzle)swizzle,
		.l2 = (enum tensor_map_l2)l2,
		.fill = (enum tensor_map_fill)fill,
	};
	return leave(enter(ENTRY_cuTensorMapEncodeTiled)
	                 ?: encode(ret, &layout, address, dim, stride, box, element_stride));
}

CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap *map, void *address)
{
	return leave(enter(ENTRY_cuTensorMapReplaceAddress) ?: replace(map, address));
}
