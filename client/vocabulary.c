/* SPDX-License-Identifier: Apache-2.0 */
/* The public names of the vocabulary, and compile-time checks that tmaclient.h matches the protocol. A new
 * row of status.def or dtype.def does not compile until tmaclient.h has its line. */
#include "client.h"

#include <string.h>
#include <strings.h>

#include "proto/scalar.h"
#include "proto/tensor.h"

#define STATUS(name, code, meaning, remedy) \
	_Static_assert((int)TMA_##name == (code), "tmaclient.h: TMA_" #name);
#define LIBRARY_STATUS STATUS
#include "proto/status.def"
_Static_assert((int)TMA_PENDING == (int)STATUS_PENDING, "tmaclient.h: TMA_PENDING");
_Static_assert(-(int)TMA_INTERNAL == STATUS_COUNT, "tmaclient.h: the last status that travels");
_Static_assert(-(int)TMA_NO_REPLY == STATUS_COUNT + 1, "tmaclient.h: a status that status.def does not have");

#define DTYPE(NAME, name, size, class) \
	_Static_assert((int)TMA_##NAME == (int)DTYPE_##NAME, "tmaclient.h: TMA_" #NAME);
#include "proto/dtype.def"
_Static_assert((int)TMA_COMPLEX128 + 1 == (int)DTYPE_COUNT, "tmaclient.h: the last dtype");

_Static_assert((int)TMA_PAD_CONSTANT == (int)PAD_MODE_CONSTANT, "tmaclient.h: TMA_PAD_CONSTANT");
_Static_assert((int)TMA_PAD_EDGE == (int)PAD_MODE_EDGE, "tmaclient.h: TMA_PAD_EDGE");
_Static_assert((int)TMA_PAD_REFLECT == (int)PAD_MODE_REFLECT, "tmaclient.h: TMA_PAD_REFLECT");
_Static_assert((int)TMA_PAD_SYMMETRIC == (int)PAD_MODE_SYMMETRIC, "tmaclient.h: TMA_PAD_SYMMETRIC");
_Static_assert((int)TMA_PAD_WRAP == (int)PAD_MODE_WRAP, "tmaclient.h: TMA_PAD_WRAP");
_Static_assert((int)TMA_PAD_WRAP + 1 == (int)PAD_MODE_COUNT, "tmaclient.h: the last pad mode");

_Static_assert((int)TMA_CAST_SATURATE == (int)CAST_SATURATE, "tmaclient.h: TMA_CAST_SATURATE");
_Static_assert((int)TMA_CAST_EXACT == (int)CAST_EXACT, "tmaclient.h: TMA_CAST_EXACT");
_Static_assert((int)TMA_CAST_IEEE == (int)CAST_IEEE, "tmaclient.h: TMA_CAST_IEEE");
_Static_assert((int)TMA_CAST_IEEE + 1 == (int)CAST_COUNT, "tmaclient.h: the last cast");

_Static_assert((int)TMA_REGION_MEMFD == (int)REGION_KIND_MEMFD + 1, "tmaclient.h: TMA_REGION_MEMFD");
_Static_assert((int)TMA_REGION_CUDA_IPC == (int)REGION_KIND_CUDA_IPC + 1, "tmaclient.h: TMA_REGION_CUDA_IPC");
_Static_assert((int)TMA_REGION_CUDA_FD == (int)REGION_KIND_CUDA_FD + 1, "tmaclient.h: TMA_REGION_CUDA_FD");
_Static_assert((int)TMA_REGION_CUDA_POOL == (int)REGION_KIND_CUDA_POOL + 1,
               "tmaclient.h: TMA_REGION_CUDA_POOL");
_Static_assert((int)TMA_REGION_CUDA_POOL == (int)REGION_KIND_COUNT, "tmaclient.h: the last region kind");

_Static_assert(TMA_MAX_RANK == TENSOR_MAX_RANK, "tmaclient.h: TMA_MAX_RANK");
_Static_assert(TENSOR_MAX_ELEMENT == 16, "tmaclient.h: tma_number_encode");

const char *tma_status_name(int status)
{
	return status_name(status);
}

const char *tma_dtype_name(enum tma_dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT ? dtype_names[dtype] : NULL;
}

size_t tma_dtype_size(enum tma_dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT ? dtype_size((enum dtype)dtype) : 0;
}

static int name_parse(const char *name, const char *const *names, int n)
{
	for (int i = 0; name && i < n; i++)
		if (!strcmp(name, names[i]))
			return i;
	return TMA_NOT_FOUND;
}

int tma_dtype_parse(const char *name)
{
	/* Other names that mean the same type wherever they are used. "float" is NumPy's, "complex"
	 * Python's. */
	static const struct {
		const char *name;
		enum tma_dtype dtype;
	} others[] = {
		{ "fp16", TMA_FLOAT16 },
		{ "half", TMA_FLOAT16 },
		{ "bf16", TMA_BFLOAT16 },
		{ "fp32", TMA_FLOAT32 },
		{ "single", TMA_FLOAT32 },
		{ "fp64", TMA_FLOAT64 },
		{ "double", TMA_FLOAT64 },
		{ "float", TMA_FLOAT64 },
		{ "fp8", TMA_FLOAT8_E4M3FN },
		{ "fp8_e4m3", TMA_FLOAT8_E4M3FN },
		{ "fp8_e4m3fn", TMA_FLOAT8_E4M3FN },
		{ "e4m3", TMA_FLOAT8_E4M3FN },
		{ "e4m3fn", TMA_FLOAT8_E4M3FN },
		{ "fp8_e5m2", TMA_FLOAT8_E5M2 },
		{ "e5m2", TMA_FLOAT8_E5M2 },
		{ "csingle", TMA_COMPLEX64 },
		{ "cdouble", TMA_COMPLEX128 },
		{ "complex", TMA_COMPLEX128 },
	};
	int dtype = name_parse(name, dtype_names, DTYPE_COUNT);

	for (size_t i = 0; dtype < 0 && name && i < sizeof others / sizeof others[0]; i++)
		if (!strcasecmp(name, others[i].name))
			dtype = (int)others[i].dtype;
	return dtype;
}

const char *tma_pad_mode_name(enum tma_pad_mode mode)
{
	return (unsigned)mode < PAD_MODE_COUNT ? pad_mode_names[mode] : NULL;
}

int tma_pad_mode_parse(const char *name)
{
	return name_parse(name, pad_mode_names, PAD_MODE_COUNT);
}

const char *tma_version(void)
{
	return PACKAGE_VERSION;
}

int scalar_from_number(const struct tma_number *number, struct scalar *ret)
{
	*ret = (struct scalar){ 0 };
	switch (number->kind) {
	case TMA_NUMBER_INT:
		if (number->i < 0)
			*ret = (struct scalar){ .kind = SCALAR_SIGNED, .i = number->i };
		else
			*ret = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = (uint64_t)number->i };
		return 0;
	case TMA_NUMBER_UINT:
		*ret = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = number->u };
		return 0;
	case TMA_NUMBER_REAL:
		*ret = (struct scalar){ .kind = SCALAR_FLOATING, .re = number->re };
		return 0;
	case TMA_NUMBER_COMPLEX:
		*ret = (struct scalar){ .kind = SCALAR_COMPLEX, .re = number->re, .im = number->im };
		return 0;
	}
	return STATUS_INVALID_ARGUMENT;
}

int tma_number_encode(enum tma_dtype dtype, const struct tma_number *number, uint8_t ret[16])
{
	struct scalar value;
	struct error err;

	for (size_t i = 0; number && i < COUNT(number->reserved); i++)
		if (number->reserved[i])
			return TMA_INVALID_ARGUMENT;
	if ((unsigned)dtype >= DTYPE_COUNT || !number || !ret || scalar_from_number(number, &value) < 0)
		return TMA_INVALID_ARGUMENT;
	return scalar_encode(&value, (enum dtype)dtype, ret, "value", &err);
}
