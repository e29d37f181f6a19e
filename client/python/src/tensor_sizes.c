/* SPDX-License-Identifier: Apache-2.0 */
/* Computes with shapes, strides and extents of tensors, which anybody may have chosen: checks them for
 * overflow first. */
#include "core.h"

struct py_tensor *py_tensor_alloc(void)
{
	struct py_tensor *t = (struct py_tensor *)PyType_GenericAlloc(core.tensor_type, 0);

	if (t) {
		t->device_type = DEVICE_CPU;
		t->stream = -1;
	}
	return t;
}

int64_t py_tensor_count(const struct py_tensor *t)
{
	int64_t count = 1;

	for (int d = 0; d < t->rank; d++)
		if (t->shape[d] == 0)
			return 0;
	for (int d = 0; d < t->rank; d++)
		count *= t->shape[d];
	return count;
}

void py_tensor_set_dense(struct py_tensor *t)
{
	int64_t step = 1;

	for (int d = t->rank - 1; d >= 0; d--) {
		t->strides[d] = step;
		if (__builtin_mul_overflow(step, t->shape[d] ? t->shape[d] : 1, &step))
			step = 0; /* py_tensor_check refuses it, unless there is no element */
	}
}

/* Sets *ret_low and *ret_high to the offsets of the lowest and highest element from element [0, ..., 0], in
 * elements. Returns false if they, or the tensor's bytes, cannot be counted in 64 bits. */
static bool find_reach(const struct py_tensor *t, int64_t *ret_low, int64_t *ret_high)
{
	int64_t low = 0, high = 0, count = 1, bytes;
	const int64_t size = (int64_t)tma_dtype_size(t->dtype);

	for (int d = 0; d < t->rank; d++) {
		int64_t reach;

		if (__builtin_mul_overflow(count, t->shape[d], &count) ||
		    __builtin_mul_overflow(t->shape[d] - 1, t->strides[d], &reach) ||
		    __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
			return false;
	}
	*ret_low = low;
	*ret_high = high;
	return !__builtin_mul_overflow(count, size, &bytes) && !__builtin_mul_overflow(low, size, &bytes) &&
	       !__builtin_sub_overflow(high, low, &bytes) && !__builtin_add_overflow(bytes, 1, &bytes) &&
	       !__builtin_mul_overflow(bytes, size, &bytes);
}

static int check(const struct py_tensor *t, bool has_memory)
{
	const uintptr_t data = (uintptr_t)t->data;
	int64_t low, high;
	bool is_empty = false;

	for (int d = 0; d < t->rank; d++) {
		if (t->shape[d] < 0) {
			PyErr_Format(PyExc_ValueError, "extent %d is negative: %lld", d,
			             (long long)t->shape[d]);
			return -1;
		}
		is_empty = is_empty || t->shape[d] == 0;
	}
	if (is_empty)
		return 0;
	if (!find_reach(t, &low, &high)) {
		PyErr_SetString(PyExc_ValueError, "the array has more bytes than can be counted");
		return -1;
	}
	if (has_memory && !t->data) {
		PyErr_SetString(PyExc_ValueError, "the array has elements but no memory: its address is 0");
		return -1;
	}
	low *= (int64_t)tma_dtype_size(t->dtype);
	high = (high + 1) * (int64_t)tma_dtype_size(t->dtype);
	if (has_memory && (data < (uint64_t)-low || data + (uint64_t)high < data)) {
		PyErr_SetString(PyExc_ValueError, "the array's addresses are not those of any memory");
		return -1;
	}
	return 0;
}

int py_tensor_check_sizes(const struct py_tensor *t)
{
	return check(t, false);
}

int py_tensor_check(const struct py_tensor *t)
{
	return check(t, true);
}

struct extent py_tensor_extent(const struct py_tensor *t)
{
	int64_t low = 0, high = 0;
	const int64_t size = (int64_t)tma_dtype_size(t->dtype);

	if (py_tensor_count(t) == 0)
		return (struct extent){ .start = t->data };
	for (int d = 0; d < t->rank; d++) {
		int64_t reach = (t->shape[d] - 1) * t->strides[d];

		if (reach < 0)
			low += reach;
		else
			high += reach;
	}
	return (struct extent){ .start = t->data + low * size, .size = (uint64_t)((high - low + 1) * size) };
}

bool py_tensor_is_host(const struct py_tensor *t)
{
	return t->device_type == DEVICE_CPU || t->device_type == DEVICE_CUDA_HOST;
}

bool py_tensor_is_contiguous(const struct py_tensor *t)
{
	int64_t step = 1;
	bool is_dense = true;

	for (int d = t->rank - 1; d >= 0; d--) {
		if (t->shape[d] == 0)
			return true;
		if (t->shape[d] != 1 && t->strides[d] != step)
			is_dense = false;
		if (__builtin_mul_overflow(step, t->shape[d], &step))
			is_dense = false;
	}
	return is_dense;
}
