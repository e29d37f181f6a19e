/* SPDX-License-Identifier: Apache-2.0 */
/* Cases for every field of a tensor map, one field after the other. */
#include <stdio.h>

#include "cases.h"

static const enum tensor_map_type by_size[] = { TENSOR_MAP_UINT8, TENSOR_MAP_UINT16, TENSOR_MAP_UINT32,
	                                        TENSOR_MAP_UINT64 };
static const char *const swizzles[] = { "no swizzle", "swizzle 32B", "swizzle 64B", "swizzle 128B" };

/* Returns the layout of a tensor of 96 bytes by 7, 5, 4, 3 with a tile of 32 bytes by 3, 2, 2, 2. */
static struct tensor_map_layout plain(enum tensor_map_type type, uint32_t rank)
{
	static const uint64_t dim[] = { 0, 7, 5, 4, 3 };
	static const uint32_t box[] = { 0, 3, 2, 2, 2 };
	struct tensor_map_layout layout = { .type = type, .rank = rank };
	uint32_t bytes = tensor_map_type_size(type);

	for (uint32_t d = 0; d < rank; d++) {
		layout.dim[d] = d ? dim[d] : 96 / bytes;
		layout.box[d] = d ? box[d] : 32 / bytes;
		layout.element_stride[d] = 1;
	}
	case_fill_strides(&layout, 16);
	return layout;
}

void cases_of_ranks(void)
{
	static const struct {
		const char *name;
		int32_t c[5]; /* c[0] is in units of 16 bytes, since the unit accepts no others */
		bool store;
	} corners[] = {
		{ "at the start", { 0, 0, 0, 0, 0 }, true },
		{ "inside", { 1, 2, 1, 1, 1 }, true },
		{ "over the start", { -1, -1, -1, -1, -1 }, false },
		{ "over the end", { 5, 5, 4, 3, 2 }, true },
		{ "past the end", { 6, 9, 7, 6, 5 }, true },
		{ "far before", { -200, -90, -80, -70, -60 }, false },
	};

	for (uint32_t rank = 1; rank <= 5; rank++)
		for (size_t t = 0; t < sizeof(by_size) / sizeof(by_size[0]); t++)
			for (size_t k = 0; k < sizeof(corners) / sizeof(corners[0]); k++) {
				struct tensor_map_layout layout = plain(by_size[t], rank);
				int32_t c[5];
				char name[96];

				for (int d = 0; d < 5; d++)
					c[d] = corners[k].c[d];
				c[0] = c[0] * 16 / (int32_t)tensor_map_type_size(by_size[t]);
				snprintf(name, sizeof(name), "load, rank %u, %s, %s", rank,
				         tensor_map_type_names[by_size[t]], corners[k].name);
				case_load(&layout, c, name);
				snprintf(name, sizeof(name), "store, rank %u, %s, %s", rank,
				         tensor_map_type_names[by_size[t]], corners[k].name);
				if (corners[k].store)
					case_store(&layout, c, name);
			}
}

void cases_of_types(void)
{
	for (int type = TENSOR_MAP_UINT8; type <= TENSOR_MAP_TFLOAT32_FTZ; type++)
		for (int fill = TENSOR_MAP_FILL_ZERO; fill <= TENSOR_MAP_FILL_NAN; fill++) {
			struct tensor_map_layout layout = plain((enum tensor_map_type)type, 2);
			const int32_t c[] = { -16 / (int32_t)tensor_map_type_size(layout.type), 5 };
			char name[96];

			if (fill == TENSOR_MAP_FILL_NAN && type < TENSOR_MAP_FLOAT16)
				continue;
			layout.fill = (enum tensor_map_fill)fill;
			snprintf(name, sizeof(name), "load, %s, filled with %s", tensor_map_type_names[type],
			         fill == TENSOR_MAP_FILL_NAN ? "NaN" : "zeros");
			case_load(&layout, c, name);
		}
	for (int l2 = TENSOR_MAP_L2_NONE; l2 <= TENSOR_MAP_L2_256B; l2++) {
		struct tensor_map_layout layout = plain(TENSOR_MAP_FLOAT32, 2);
		const int32_t c[] = { -4, 5 };
		char name[96];

		layout.l2 = (enum tensor_map_l2)l2;
		snprintf(name, sizeof(name), "load, L2 promotion %d", l2);
		case_load(&layout, c, name);
	}
}

/* Rows as wide as the swizzle, and rows of 16 bytes, over several periods of the pattern. */
void cases_of_swizzles(void)
{
	static const int32_t c[] = { 0, 3 };

	for (int s = TENSOR_MAP_SWIZZLE_NONE; s <= TENSOR_MAP_SWIZZLE_128B; s++)
		for (size_t t = 0; t < sizeof(by_size) / sizeof(by_size[0]); t++)
			for (int narrow = 0; narrow < 2; narrow++) {
				uint32_t bytes = tensor_map_type_size(by_size[t]);
				struct tensor_map_layout layout = {
					.type = by_size[t],
					.rank = 2,
					.dim = { 256 / bytes, 60 },
					.box = { (narrow ? 16 : 16u << s) / bytes, 37 },
					.element_stride = { 1, 1 },
					.swizzle = (enum tensor_map_swizzle)s,
				};
				char name[96];

				case_fill_strides(&layout, 0);
				snprintf(name, sizeof(name), "load, %s, rows of %u bytes, %s", swizzles[s],
				         layout.box[0] * bytes, tensor_map_type_names[by_size[t]]);
				case_load(&layout, c, name);
				snprintf(name, sizeof(name), "store, %s, rows of %u bytes, %s", swizzles[s],
				         layout.box[0] * bytes, tensor_map_type_names[by_size[t]]);
				case_store(&layout, c, name);
			}
}

/* Boxes that the element stride divides, and others. Dimension 0 has no element stride. */
void cases_of_element_strides(void)
{
	for (uint32_t stride = 1; stride <= 8; stride++)
		for (uint32_t d = 0; d < 3; d++) {
			struct tensor_map_layout layout = {
				.type = TENSOR_MAP_UINT16,
				.rank = 3,
				.dim = { 64, 40, 40 },
				.box = { 16, 8, 7 },
				.element_stride = { 1, 1, 1 },
			};
			const int32_t over[] = { 56, 35, -3 }, at[] = { 8, 2, 1 };
			char name[96];

			layout.element_stride[d] = stride;
			case_fill_strides(&layout, 0);
			snprintf(name, sizeof(name), "load, element stride %u in dimension %u", stride, d);
			case_load(&layout, at, name);
			snprintf(name, sizeof(name), "load, element stride %u in dimension %u, over the edge",
			         stride, d);
			case_load(&layout, over, name);
			snprintf(name, sizeof(name), "store, element stride %u in dimension %u", stride, d);
			case_store(&layout, at, name);
		}
}

/* Slices of 16 or 32 bytes, where the last dimension but one selects a group of channels. */
void cases_of_interleaves(void)
{
	for (uint32_t rank = 3; rank <= 5; rank++)
		for (int interleave = TENSOR_MAP_INTERLEAVE_16B; interleave <= TENSOR_MAP_INTERLEAVE_32B;
		     interleave++)
			for (int s = TENSOR_MAP_SWIZZLE_NONE; s <= TENSOR_MAP_SWIZZLE_128B; s++) {
				struct tensor_map_layout layout = {
					.type = TENSOR_MAP_FLOAT16,
					.rank = rank,
					.dim = { 12, 7, 5, 4, 3 },
					.box = { 8, 3, 2, 2, 2 },
					.element_stride = { 1, 1, 1, 1, 1 },
					.interleave = (enum tensor_map_interleave)interleave,
					.swizzle = (enum tensor_map_swizzle)s,
				};
				const int32_t at[] = { 2, 1, 1, 1, 1 }, over[] = { -1, -1, 1, 2, 2 };
				const char *slice = interleave == TENSOR_MAP_INTERLEAVE_16B ? "16B" : "32B";
				char name[96];

				if (interleave == TENSOR_MAP_INTERLEAVE_32B && s != TENSOR_MAP_SWIZZLE_32B)
					continue;
				for (uint32_t d = rank; d < 5; d++)
					layout.dim[d] = layout.box[d] = layout.element_stride[d] = 0;
				layout.box[rank - 2] = 1;
				case_fill_strides(&layout, 0);
				snprintf(name, sizeof(name), "load, rank %u, interleave %s, %s", rank, slice,
				         swizzles[s]);
				case_load(&layout, at, name);
				snprintf(name, sizeof(name),
				         "load, rank %u, interleave %s, %s, over the edge", rank, slice,
				         swizzles[s]);
				case_load(&layout, over, name);
				snprintf(name, sizeof(name), "store, rank %u, interleave %s, %s", rank, slice,
				         swizzles[s]);
				case_store(&layout, at, name);
			}
}
