/* SPDX-License-Identifier: Apache-2.0 */
/* Checks and copies lists of block numbers that a caller has in host memory, before anything is moved. In a
 * copy all numbers are in range and no block of dst occurs twice, even if the caller changes the list
 * meanwhile. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

static int read_integer(enum tma_dtype dtype, const char *at, int64_t *ret)
{
	switch (dtype) {
#define INTEGER(name, type)                       \
	case name: {                              \
		type value;                       \
		memcpy(&value, at, sizeof value); \
		*ret = (int64_t)value;            \
		return 0;                         \
	}
		INTEGER(TMA_UINT8, uint8_t)
		INTEGER(TMA_INT8, int8_t)
		INTEGER(TMA_UINT16, uint16_t)
		INTEGER(TMA_INT16, int16_t)
		INTEGER(TMA_UINT32, uint32_t)
		INTEGER(TMA_INT32, int32_t)
		INTEGER(TMA_INT64, int64_t)
#undef INTEGER
	case TMA_UINT64: {
		uint64_t value;

		memcpy(&value, at, sizeof value);
		*ret =
		    value > INT64_MAX ? INT64_MAX : (int64_t)value; /* beyond any array, but not negative */
		return 0;
	}
	default:
		PyErr_Format(PyExc_TypeError, "index: elements of %s; it has to be of integers",
		             tma_dtype_name(dtype));
		return -1;
	}
}

/* A list of block numbers and their limits. An entry is the number of a block of src or of dst, or a pair of
 * both. */
struct block_list {
	const struct py_tensor *tensor;
	int64_t n;        /* number of entries */
	int width;        /* numbers in an entry: 1 or 2 */
	int64_t limit[2]; /* number k of an entry must be below limit[k] */
	int dst;          /* index of the number in an entry that is a block of dst; -1: none is */
};

/* Returns false if no two entries have the same block of dst. Keeps a bit for each block, which is fast but
 * does not tell which entries collide. Returns true as well if the bits would take more memory than the table
 * of check_distinct, or memory is exhausted. */
static bool may_be_twice(const struct block_list *list, const int64_t *values)
{
	const int64_t limit = list->limit[list->dst];
	unsigned char *seen = limit / 128 <= list->n ? calloc(1, (size_t)limit / 8 + 1) : NULL;
	bool is_twice = !seen;

	for (int64_t i = list->dst; !is_twice && i < list->width * list->n; i += list->width) {
		const unsigned bit = 1u << values[i] % 8;

		is_twice = seen[values[i] / 8] & bit;
		seen[values[i] / 8] |= (unsigned char)bit;
	}
	free(seen);
	return is_twice;
}

/* A hash table that finds an entry by its block of dst. It has 1 << bits slots. */
struct entry_table {
	const int64_t *blocks; /* the block of entry i is blocks[i * width] */
	int width, bits;
	int64_t *slots; /* number of an entry plus 1; 0: the slot is empty; owned */
};

static int entry_table_init(struct entry_table *table, const int64_t *blocks, int width, int64_t n)
{
	*table = (struct entry_table){ .blocks = blocks, .width = width, .bits = 1 };
	while (table->bits < 62 && INT64_C(1) << table->bits < 2 * n)
		table->bits++;
	table->slots = calloc((size_t)1 << table->bits, sizeof *table->slots);
	if (table->slots)
		return 0;
	PyErr_NoMemory();
	return -1;
}

/* Returns the slot of the entry with this block, or the empty slot where that entry would be. */
static int64_t *entry_slot(const struct entry_table *table, int64_t block)
{
	const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t at = (uint64_t)block * factor >> (64 - table->bits);

	while (table->slots[at] && table->blocks[(table->slots[at] - 1) * table->width] != block)
		at = (at + 1) & ((UINT64_C(1) << table->bits) - 1);
	return &table->slots[at];
}

/* Returns -1 with OverlapError if two entries have the same block of dst, otherwise 0. */
static int check_distinct(const struct block_list *list, const int64_t *values)
{
	const bool is_pairs = list->width == 2;
	struct entry_table table;
	int rc;

	rc = entry_table_init(&table, values + list->dst, list->width, list->n);
	for (int64_t i = 0; rc == 0 && i < list->n; i++) {
		const int64_t block = table.blocks[i * list->width];
		int64_t *slot = entry_slot(&table, block);

		if (*slot)
			rc = raise_status(
			    TMA_OVERLAP,
			    "%s[%lld]%s: %lld, as %s[%lld]%s: two blocks would be written to the same "
			    "place in dst",
			    is_pairs ? "pairs" : "index", (long long)i, is_pairs ? "[1]" : "",
			    (long long)block, is_pairs ? "pairs" : "index", (long long)(*slot - 1),
			    is_pairs ? "[1]" : "");
		*slot = i + 1;
	}
	free(table.slots);
	return rc;
}

/* Copies one number of each of n entries, which are `width` numbers long, to the same place in values, and
 * adds limit to negative ones. Returns whether the copies are all in range. */
static inline bool copy_column(const int64_t *from, int64_t n, int width, int64_t limit, int64_t *values)
{
	bool is_in_range = true;

	for (int64_t i = 0; i < n * width; i += width) {
		values[i] = from[i] + (from[i] < 0 ? limit : 0);
		is_in_range &= values[i] >= 0 && values[i] < limit;
	}
	return is_in_range;
}

/* Copies a contiguous, aligned list of int64 quickly. Returns false if a number is out of range or the list
 * is of another kind; copy_entry then reads it number by number. */
static bool copy_plain(const struct block_list *list, int64_t *values)
{
	const struct py_tensor *index = list->tensor;
	const int64_t *from = (const int64_t *)(const void *)index->data;

	if (index->dtype != TMA_INT64 || !py_tensor_is_contiguous(index) || (uintptr_t)index->data % 8)
		return false;
	if (list->width == 1)
		return copy_column(from, list->n, 1, list->limit[0], values);
	return copy_column(from, list->n, 2, list->limit[0], values) &&
	       copy_column(from + 1, list->n, 2, list->limit[1], values + 1);
}

static int copy_entry(const struct block_list *list, int64_t i, int64_t *values)
{
	const struct py_tensor *index = list->tensor;

	for (int k = 0; k < list->width; k++) {
		const int64_t at = i * index->strides[0] + (k ? index->strides[1] : 0);
		int64_t value, number;

		if (read_integer(index->dtype, index->data + at * (int64_t)tma_dtype_size(index->dtype),
		                 &value) < 0)
			return -1;
		number = value < 0 ? value + list->limit[k] : value;
		values[i * list->width + k] = number;
		if (number >= 0 && number < list->limit[k])
			continue;
		if (list->width == 1)
			return raise_status(TMA_OUT_OF_RANGE, "index: entry %lld is %lld, of %lld blocks",
			                    (long long)i, (long long)value, (long long)list->limit[k]);
		return raise_status(TMA_OUT_OF_RANGE, "pairs[%lld][%d]: %lld, but %s has %lld blocks",
		                    (long long)i, k, (long long)value, k ? "dst" : "src",
		                    (long long)list->limit[k]);
	}
	return 0;
}

static int copy_list(const struct block_list *list, int64_t *values)
{
	if (!copy_plain(list, values))
		for (int64_t i = 0; i < list->n; i++)
			if (copy_entry(list, i, values) < 0)
				return -1;
	return list->dst >= 0 && may_be_twice(list, values) ? check_distinct(list, values) : 0;
}

static int parse_list(PyObject *args, struct block_list *ret)
{
	long long src, dst;
	PyObject *object;

	if (!PyArg_ParseTuple(args, "O!LL:check_index", core.tensor_type, &object, &src, &dst))
		return -1;
	*ret = (struct block_list){ .tensor = (struct py_tensor *)object,
		                    .width = src >= 0 && dst >= 0 ? 2 : 1,
		                    .limit = { src >= 0 ? src : dst, dst },
		                    .dst = dst < 0 ? -1 : src >= 0 };
	if (!py_tensor_is_host(ret->tensor) || (src < 0 && dst < 0) || ret->tensor->rank != ret->width ||
	    (ret->width == 2 && ret->tensor->shape[1] != 2)) {
		PyErr_SetString(PyExc_ValueError, "index: it has to be a list, of numbers or of pairs");
		return -1;
	}
	ret->n = ret->tensor->shape[0];
	return 0;
}

/* Returns a Tensor of int64, in the list's shape, that views the bytes of memory, or NULL with an
 * exception. */
static PyObject *view_list(PyObject *memory, const struct block_list *list)
{
	PyObject *bytes = (PyObject *)py_tensor_of_buffer(memory, TMA_UINT8), *viewed;

	if (!bytes)
		return NULL;
	if (list->width == 1)
		viewed = PyObject_CallMethod(bytes, "viewed", "s(L)", "int64", (long long)list->n);
	else
		viewed = PyObject_CallMethod(bytes, "viewed", "s(Li)", "int64", (long long)list->n, 2);
	Py_DECREF(bytes);
	return viewed;
}

/* check_index(index, src_limit, dst_limit) returns a contiguous copy of a list as int64. The limits are the
 * numbers of blocks that src and dst have. One of them is -1 if the list has no numbers of that side; if both
 * are given, it is a list of pairs. Negative numbers count from the end. Raises OutOfRangeError, and
 * OverlapError if a block of dst occurs twice. */
PyObject *check_index(PyObject *self, PyObject *args)
{
	PyObject *memory, *copy = NULL;
	struct block_list list;
	Py_ssize_t entry;

	(void)self;
	if (parse_list(args, &list) < 0)
		return NULL;
	entry = list.width * (Py_ssize_t)sizeof(int64_t);
	if (list.n > PY_SSIZE_T_MAX / entry)
		return PyErr_NoMemory();
	memory = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)list.n * entry);
	if (!memory)
		return NULL;
	if (copy_list(&list, (int64_t *)(void *)PyByteArray_AsString(memory)) == 0)
		copy = view_list(memory, &list);
	Py_DECREF(memory);
	return copy;
}

/* check_pool(pairs) raises OverlapError if a block that one pair reads is written by any pair. pairs is what
 * check_index returned for dst and src that are the same blocks. */
PyObject *check_pool(PyObject *self, PyObject *args)
{
	const struct py_tensor *pairs;
	struct entry_table table;
	const int64_t *values;
	PyObject *object;
	int rc;

	(void)self;
	if (!PyArg_ParseTuple(args, "O!:check_pool", core.tensor_type, &object))
		return NULL;
	pairs = (const struct py_tensor *)object;
	if (pairs->rank != 2 || pairs->shape[1] != 2 || pairs->dtype != TMA_INT64 ||
	    !py_tensor_is_host(pairs) || !py_tensor_is_contiguous(pairs)) {
		PyErr_SetString(PyExc_ValueError, "pairs: they are contiguous int64 in host memory");
		return NULL;
	}
	values = (const int64_t *)(const void *)pairs->data;
	rc = entry_table_init(&table, values + 1, 2, pairs->shape[0]);
	for (int64_t i = 0; rc == 0 && i < pairs->shape[0]; i++)
		*entry_slot(&table, values[2 * i + 1]) = i + 1;
	for (int64_t i = 0; rc == 0 && i < pairs->shape[0]; i++) {
		const int64_t other = *entry_slot(&table, values[2 * i]);

		if (other)
			rc = raise_status(
			    TMA_OVERLAP,
			    "pairs[%lld][0]: %lld, as pairs[%lld][1]: dst and src are the same blocks, "
			    "and this one would be read and written",
			    (long long)i, (long long)values[2 * i], (long long)(other - 1));
	}
	free(table.slots);
	if (rc < 0)
		return NULL;
	Py_RETURN_NONE;
}
