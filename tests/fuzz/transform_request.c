/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes, encodes and changes a transform request. */
#include "transform_request.h"

#include <string.h>

#include "tests/support/conversion_case.h"
#include "tests/support/oracle.h"
#include "tests/support/split_case.h"

struct cursor {
	uint8_t *data;
	size_t size;
	size_t at;
};

/* ---- Bytes: one walk for both ways ------------------------------------------------------------------- */

enum way { READ, WRITE };

static void byte(struct cursor *c, enum way way, uint8_t *value)
{
	if (way == READ)
		*value = c->at < c->size ? c->data[c->at] : 0;
	else if (c->at < c->size)
		c->data[c->at] = *value;
	c->at++;
}

#define SMALL_BIAS 64
#define SMALL_MOST 0xf0
#define WIDE       0xff

/* Numbers from -64 to 175 take one byte, others two or eight more. */
static void number(struct cursor *c, enum way way, int64_t *value)
{
	uint64_t bits = (uint64_t)*value;
	uint8_t first = WIDE, part;
	int more;

	if (*value >= -SMALL_BIAS && *value < SMALL_MOST - SMALL_BIAS)
		first = (uint8_t)(*value + SMALL_BIAS);
	else if (*value == (int16_t)*value)
		first = SMALL_MOST;
	if (way == READ && c->at >= c->size) {
		*value = 0;
		return;
	}
	byte(c, way, &first);
	more = first < SMALL_MOST ? 0 : first == WIDE ? 8 : 2;
	if (way == READ)
		bits = more ? 0 : (uint64_t)first - SMALL_BIAS;
	for (int i = 0; i < more; i++) {
		part = (uint8_t)(bits >> 8 * i);
		byte(c, way, &part);
		if (way == READ)
			bits |= (uint64_t)part << 8 * i;
	}
	*value = more == 2 ? (int16_t)bits : (int64_t)bits;
}

static void numbers(struct cursor *c, enum way way, int n, int64_t *list)
{
	for (int i = 0; i < n; i++)
		number(c, way, &list[i]);
}

static void flag(struct cursor *c, enum way way, bool *value)
{
	uint8_t bits = *value;

	byte(c, way, &bits);
	*value = bits & 1;
}

/* A list that is not given has n = -1. */
static void list(struct cursor *c, enum way way, int *n, int64_t *v)
{
	uint8_t count = (uint8_t)(*n + 1);

	byte(c, way, &count);
	*n = count % (TENSOR_MAX_RANK + 2) - 1;
	numbers(c, way, *n, v);
}

/* Splits come at the end, so that inputs from before they existed keep their meaning. */
static void splits(struct cursor *c, enum way way, struct split_list *list)
{
	uint8_t n = (uint8_t)list->n;

	byte(c, way, &n);
	list->n = n % (SPLIT_MAX + 1);
	for (int i = 0; i < list->n; i++) {
		number(c, way, &list->dim[i]);
		number(c, way, &list->by[i]);
	}
}

static void tensor(struct cursor *c, enum way way, struct transform_request_tensor *t)
{
	byte(c, way, &t->dtype);
	byte(c, way, &t->rank);
	t->dtype %= DTYPE_COUNT;
	t->rank %= TENSOR_MAX_RANK + 1;
	flag(c, way, &t->strided);
	numbers(c, way, t->rank, t->shape);
	if (t->strided)
		numbers(c, way, t->rank, t->strides);
	number(c, way, &t->offset);
	number(c, way, &t->size);
}

/* Operands follow the splits, for the same reason. */
static void operand(struct cursor *c, enum way way, struct transform_request_operand *o)
{
	byte(c, way, &o->kind);
	o->kind %= 3;
	if (o->kind == OPERAND_NUMBER)
		number(c, way, &o->number);
	if (o->kind != OPERAND_TENSOR)
		return;
	tensor(c, way, &o->tensor);
	if (o->tensor.dtype != DTYPE_FLOAT64)
		o->tensor.dtype = o->tensor.dtype % 8 ? DTYPE_FLOAT32 : o->tensor.dtype;
}

static void walk(struct cursor *c, enum way way, struct transform_request *q)
{
	uint8_t kind = (uint8_t)q->value.kind;
	int64_t value = q->value.kind <= SCALAR_SIGNED ? q->value.i : 0;

	byte(c, way, &q->way);
	flag(c, way, &q->same_memory);
	tensor(c, way, &q->dst);
	tensor(c, way, &q->src);
	list(c, way, &q->n_perm, q->perm);
	list(c, way, &q->n_before, q->before);
	list(c, way, &q->n_after, q->after);
	byte(c, way, &q->mode);
	q->mode %= PAD_MODE_COUNT;
	byte(c, way, &kind);
	q->value.kind = (enum scalar_kind)(kind % 4);
	if (q->value.kind > SCALAR_SIGNED)
		memcpy(&value, &q->value.re, sizeof value);
	number(c, way, &value);
	memcpy(&q->value.re, &value, sizeof value);
	if (q->value.kind == SCALAR_SIGNED && value >= 0)
		q->value.kind = SCALAR_UNSIGNED;
	memcpy(&value, &q->value.im, sizeof value);
	number(c, way, &value);
	memcpy(&q->value.im, &value, sizeof value);
	splits(c, way, &q->dst.split);
	splits(c, way, &q->src.split);
	byte(c, way, &q->cast);
	q->cast %= 1 + CAST_COUNT;
	operand(c, way, &q->scale);
	operand(c, way, &q->bias);
}

void transform_request_read(struct transform_request *ret, const uint8_t *data, size_t size)
{
	struct cursor c = { (uint8_t *)(uintptr_t)data, size, 0 };

	*ret = (struct transform_request){ 0 };
	walk(&c, READ, ret);
}

size_t transform_request_write(const struct transform_request *request, uint8_t *data, size_t size)
{
	struct cursor c = { data, size, 0 };
	struct transform_request copy = *request;

	walk(&c, WRITE, &copy);
	return c.at < size ? c.at : size;
}

/* ---- Questions ---------------------------------------------------------------------------------------- */

static void tensor_of(struct transform_request_tensor *ret, const struct tensor_layout *layout,
                      uint64_t offset, size_t size)
{
	*ret = (struct transform_request_tensor){ .dtype = (uint8_t)layout->dtype,
		                                  .rank = (uint8_t)layout->rank,
		                                  .strided = true,
		                                  .offset = (int64_t)offset,
		                                  .size = (int64_t)size };
	memcpy(ret->shape, layout->shape, sizeof ret->shape);
	memcpy(ret->strides, layout->stride, sizeof ret->strides);
}

static void request_of(struct transform_request *ret, uint64_t *random, const struct oracle_case *c)
{
	*ret = (struct transform_request){ .way = (uint8_t)oracle_random(random),
		                           .n_perm = c->spec.n_perm,
		                           .n_before = c->spec.n_before,
		                           .n_after = c->spec.n_after,
		                           .mode = (uint8_t)c->spec.mode,
		                           .value = c->spec.value };
	tensor_of(&ret->dst, &c->spec.dst, c->dst_offset, c->dst_size);
	tensor_of(&ret->src, &c->spec.src, c->src_offset, c->src_size);
	memcpy(ret->perm, c->spec.perm, sizeof ret->perm);
	memcpy(ret->before, c->spec.before, sizeof ret->before);
	memcpy(ret->after, c->spec.after, sizeof ret->after);
}

void transform_request_valid(struct transform_request *ret, uint64_t *random)
{
	struct oracle_case c;

	oracle_random_case(oracle_random(random), &c);
	request_of(ret, random, &c);
}

/* Gives the destination another type of the same size, so that all places stay as they are. Operands are
 * scalars, which incomplete blocks allow. */
static void convert_in_size(struct transform_request *q, uint64_t *random)
{
	enum dtype dtype;

	if (dtype_class((enum dtype)q->dst.dtype) == DTYPE_CLASS_COMPLEX)
		return;
	do
		dtype = (enum dtype)(oracle_random(random) % DTYPE_COUNT);
	while (dtype_size(dtype) != dtype_size((enum dtype)q->dst.dtype) ||
	       dtype_class(dtype) == DTYPE_CLASS_COMPLEX);
	q->dst.dtype = (uint8_t)dtype;
	q->cast = (uint8_t)(1 + oracle_random(random) % CAST_COUNT);
	q->value = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = oracle_random(random) % 2 };
	q->scale.kind = (uint8_t)(oracle_random(random) % 2 ? OPERAND_NUMBER : OPERAND_NONE);
	q->scale.number = oracle_between(random, -20, 20);
	q->bias.kind = (uint8_t)(oracle_random(random) % 2 ? OPERAND_NUMBER : OPERAND_NONE);
	q->bias.number = oracle_between(random, -20, 20);
}

void transform_request_valid_split(struct transform_request *ret, uint64_t *random)
{
	struct split_case c;

	split_random_case(oracle_random(random), &c);
	request_of(ret, random, &c.c);
	ret->dst.split = c.dst;
	ret->src.split = c.src;
	if (oracle_random(random) % 2)
		convert_in_size(ret, random);
}

static void operand_of(struct transform_request_operand *ret, const struct operand_spec *spec,
                       const struct operand_case *operand)
{
	ret->kind = (uint8_t)spec->kind;
	memcpy(&ret->number, &operand->number, sizeof ret->number);
	if (spec->kind == OPERAND_TENSOR)
		tensor_of(&ret->tensor, &spec->layout, operand->offset, operand->size);
}

void transform_request_valid_conversion(struct transform_request *ret, uint64_t *random)
{
	struct conversion_case c;

	conversion_random_case(oracle_random(random), &c);
	request_of(ret, random, &c.c);
	ret->cast = (uint8_t)(1 + c.c.spec.conversion.cast);
	operand_of(&ret->scale, &c.c.spec.conversion.scale, &c.scale);
	operand_of(&ret->bias, &c.c.spec.conversion.bias, &c.bias);
}

#define EIGHTHS 4096

double transform_request_number(const struct transform_request_operand *operand)
{
	double number;

	if (operand->number >= -EIGHTHS && operand->number <= EIGHTHS)
		return (double)operand->number / 8;
	memcpy(&number, &operand->number, sizeof number);
	return number;
}

static int64_t wrapped(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t changed(int64_t value, uint64_t *random)
{
	static const int64_t limits[] = { 0,         1,         -1,         2,
		                          64,        65536,     INT32_MAX,  INT32_MIN,
		                          INT64_MAX, INT64_MIN, UINT32_MAX, INT64_C(1) << 62,
		                          1 << 20 };

	switch (oracle_random(random) % 5) {
	case 0:
		return limits[oracle_random(random) % (sizeof limits / sizeof *limits)];
	case 1:
		return (int64_t)(0 - (uint64_t)value);
	case 2:
		return (int64_t)((uint64_t)value * 2);
	default:
		return wrapped(value, oracle_random(random) % 2 ? 1 : -1);
	}
}

static void change_split(struct split_list *list, uint64_t *random)
{
	uint64_t i = oracle_random(random) % SPLIT_MAX;

	if (list->n > 0 && oracle_random(random) % 4)
		i %= (uint64_t)list->n;
	switch (oracle_random(random) % 4) {
	case 0:
		list->n = (int)((uint64_t)changed(list->n, random) % (SPLIT_MAX + 1));
		break;
	case 1:
		list->dim[i] = changed(list->dim[i], random);
		break;
	default:
		list->by[i] = changed(list->by[i], random);
	}
}

static void change_tensor(struct transform_request_tensor *t, uint64_t *random)
{
	uint64_t d = oracle_random(random) % (t->rank ? t->rank : 1);

	switch (oracle_random(random) % 8) {
	case 7:
		change_split(&t->split, random);
		break;
	case 0:
		t->shape[d] = changed(t->shape[d], random);
		break;
	case 1:
	case 2:
		t->strides[d] = changed(t->strides[d], random);
		break;
	case 3:
		t->offset = changed(t->offset, random);
		break;
	case 4:
		t->size = changed(t->size, random);
		break;
	case 5:
		t->strided = !t->strided;
		break;
	default:
		t->rank = (uint8_t)((uint64_t)changed(t->rank, random) % (TENSOR_MAX_RANK + 1));
	}
}

static void change_cast(struct transform_request *q, uint64_t *random)
{
	struct transform_request_operand *operand = oracle_random(random) % 2 ? &q->scale : &q->bias;

	switch (oracle_random(random) % 6) {
	case 0:
		q->cast = (uint8_t)(oracle_random(random) % (1 + CAST_COUNT));
		break;
	case 1:
		operand->kind = (uint8_t)(oracle_random(random) % 3);
		break;
	case 2:
		operand->number = changed(operand->number, random);
		break;
	case 3:
		q->dst.dtype = (uint8_t)(oracle_random(random) % DTYPE_COUNT);
		break;
	default:
		change_tensor(&operand->tensor, random);
	}
}

void transform_request_change(struct transform_request *q, uint64_t *random)
{
	uint64_t d = oracle_random(random) % (q->src.rank ? q->src.rank : 1);
	int64_t by;

	switch (oracle_random(random) % 12) {
	case 10:
	case 11:
		change_cast(q, random);
		break;
	case 0:
	case 1:
		change_tensor(&q->dst, random);
		break;
	case 2:
	case 3:
		change_tensor(&q->src, random);
		break;
	case 4:
		q->perm[d] = changed(q->perm[d], random);
		break;
	case 5: /* makes both sides agree again */
		by = oracle_between(random, -3, 5);
		q->before[d] = wrapped(q->before[d], by);
		q->dst.shape[d] = wrapped(q->dst.shape[d], by);
		break;
	case 6:
		q->after[d] = changed(q->after[d], random);
		break;
	case 7:
		q->mode = (uint8_t)oracle_random(random);
		break;
	case 8:
		q->value.i = changed(q->value.i, random);
		break;
	default: /* puts both tensors near each other in one memory */
		q->same_memory = !q->same_memory;
		q->src.offset = wrapped(q->src.offset, oracle_between(random, -64, 64));
	}
}
