/* SPDX-License-Identifier: Apache-2.0 */
/* Makes valid messages from the tables. */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "proto/wire/rpc.h"

/* Returns one item of each kind. */
static struct item_list sample_items(void)
{
	static struct submit_item items[2];

	items[1].is_run = true;
	sample_message(&transform_message,
	               F(transform, dst) | F(transform, src) | F(transform, perm) | F(transform, value),
	               &items[0].transform);
	sample_message(&plan_run_message, F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src),
	               &items[1].run);
	return (struct item_list){ .items = items, .n = 2 };
}

static void sample_field(const struct field *field, void *at)
{
	static const struct counter counters[] = { { "one", 1 }, { "most", UINT64_MAX } };
	static const char *const names[] = { "copy", "pad" };
	static const int32_t codes[] = { 0, STATUS_INVALID_ARGUMENT, STATUS_INTERNAL };
	static uint64_t items[192]; /* zeros, which are valid for any struct */

	switch (field->kind) {
	case FIELD_KIND_BOOL:
		*(bool *)at = false;
		break;
	case FIELD_KIND_UINT:
		*(uint64_t *)at = 0x123456789a;
		break;
	case FIELD_KIND_STRING:
		*(struct bytes *)at = (struct bytes){ "GPU-1", 5 };
		break;
	case FIELD_KIND_BINARY:
		*(struct bytes *)at = (struct bytes){ "\x00\xff\xc1", 3 };
		break;
	case FIELD_KIND_DTYPE:
		*(enum dtype *)at = DTYPE_FLOAT32;
		break;
	case FIELD_KIND_PAD_MODE:
		*(enum pad_mode *)at = PAD_MODE_REFLECT;
		break;
	case FIELD_KIND_CAST:
		*(enum cast *)at = CAST_EXACT;
		break;
	case FIELD_KIND_REGION_KIND:
		*(enum region_kind *)at = REGION_KIND_CUDA_FD;
		break;
	case FIELD_KIND_REGION_STATE:
		*(enum region_state *)at = REGION_STATE_DRAINING;
		break;
	case FIELD_KIND_PRIORITY:
		*(enum job_priority *)at = JOB_PRIORITY_URGENT;
		break;
	case FIELD_KIND_COMPLETION:
		*(enum completion *)at = COMPLETION_QUEUED;
		break;
	case FIELD_KIND_DEVICE:
		*(struct device_name *)at = (struct device_name){ .number = 3 };
		break;
	case FIELD_KIND_INTS:
		*(struct int_list *)at = (struct int_list){ 4, { 0, -1, INT64_MIN, INT64_MAX } };
		break;
	case FIELD_KIND_VALUE:
		*(struct scalar *)at = (struct scalar){ .kind = SCALAR_COMPLEX, .re = -0.0, .im = 1.5 };
		break;
	case FIELD_KIND_PLACE:
		*(struct region_place *)at = (struct region_place){ 0x123456789a, UINT64_MAX };
		break;
	case FIELD_KIND_ITEMS:
		*(struct item_list *)at = sample_items();
		break;
	case FIELD_KIND_CODES:
		*(struct code_list *)at = (struct code_list){ .codes = codes, .n = 3 };
		break;
	case FIELD_KIND_MESSAGE:
		sample_message(field->inner, (UINT64_C(1) << field->inner->n_fields) - 1, at);
		break;
	case FIELD_KIND_OPERAND:
		sample_message(field->inner,
		               ((UINT64_C(1) << field->inner->n_fields) - 1) & ~F(operand, number), at);
		break;
	case FIELD_KIND_LIST:
		cr_assert_leq(field->inner->size, sizeof items);
		*(struct message_list *)at = (struct message_list){ .items = items, .n = 1 };
		break;
	case FIELD_KIND_NAMES:
		*(struct name_list *)at = (struct name_list){ names, 2 };
		break;
	case FIELD_KIND_COUNTERS:
		*(struct counter_list *)at = (struct counter_list){ counters, 2 };
		break;
	case FIELD_KIND_COUNT:
		cr_assert_fail("field %s has no kind", field->name);
	}
}

void sample_message(const struct message *message, uint64_t fields, void *value)
{
	memset(value, 0, message->size);
	*(uint64_t *)value = fields;
	for (uint32_t i = 0; i < message->n_fields; i++)
		if (fields & (UINT64_C(1) << i))
			sample_field(&message->fields[i], (char *)value + message->fields[i].offset);
}

struct buffer sample_request(const struct method *method, uint64_t fields)
{
	struct buffer b = { 0 };
	union params params;

	sample_message(method->params, fields, &params);
	cr_assert_eq(rpc_encode_request(&b, 7, method, &params), 0, "%s", method->name);
	return b;
}

static struct msg_part *keep_parts(struct message_list *list)
{
	struct msg_part *parts = calloc(list->n + 1, sizeof *parts);
	struct error err = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++)
		n += rpc_decode_part(list, i, &parts[n], &err) == 0;
	*list = (struct message_list){ .items = parts, .n = n };
	return parts;
}

static struct msg_tensor *keep_further_dst(struct message_list *list)
{
	struct msg_tensor *tensors = calloc(list->n + 1, sizeof *tensors);
	struct error err = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++)
		n += rpc_decode_further_dst(list, i, &tensors[n], &err) == 0;
	*list = (struct message_list){ .items = tensors, .n = n };
	return tensors;
}

static struct submit_item *keep_items(struct item_list *list)
{
	struct submit_item *items = calloc(list->n + 1, sizeof *items);
	struct error err = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++)
		n += rpc_decode_item(list, i, &items[n], &err) == 0;
	*list = (struct item_list){ .items = items, .n = n };
	return items;
}

/* Copies the slices of both lists to one array and makes the lists refer to it. */
static struct msg_slice *keep_slices(struct msg_reshard *params)
{
	struct message_list *lists[] = { &params->destinations, &params->sources };
	struct msg_slice *slices = calloc(params->destinations.n + params->sources.n + 1, sizeof *slices);
	struct msg_slice *at = slices;
	struct error err = { 0 };

	for (int k = 0; k < 2; k++) {
		struct msg_slice *first = at;

		for (uint32_t i = 0; i < lists[k]->n; i++)
			at += rpc_decode_slice(lists[k], "slices", i, at, &err) == 0;
		*lists[k] = (struct message_list){ .items = first, .n = (uint32_t)(at - first) };
	}
	return slices;
}

void *sample_keep_lists(struct rpc_request *request)
{
	switch (request->method->id) {
	case METHOD_submit:
		return keep_items(&request->params.submit.items);
	case METHOD_transform:
		return keep_further_dst(&request->params.transform.further_dst);
	case METHOD_region_register:
		return keep_parts(&request->params.region_register.parts);
	case METHOD_reshard:
		return keep_slices(&request->params.reshard);
	default:
		return NULL;
	}
}

struct buffer sample_nth_request(int n)
{
	const struct method *method = &methods[n / 2];

	return sample_request(method, n % 2 ? method->accepts : method->requires);
}

struct buffer sample_all_types(void)
{
	static const char bytes[] = "\xdc\x00\x29"                             /* array 16: 41 elements */
				    "\xc0\xc2\xc3\x00\x7f\xe0\xff"             /* 7: nil, booleans, fixints */
				    "\xcc\xff\xcd\xff\xff\xce\xff\xff\xff\xff" /* 3: uint 8 to 32 */
				    "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"     /* uint 64 */
				    "\xd0\x80\xd1\x80\x00\xd2\x80\x00\x00\x00" /* 3: int 8 to 32 */
				    "\xd3\x80\x00\x00\x00\x00\x00\x00\x00"     /* int 64 */
				    "\xca\x7f\xc0\x00\x01\xcb\x7f\xf8\0\0\0\0\0\1" /* 2: floats */
				    "\xa0\xa3one\xd9\x00\xd9\x03two"               /* 4: fixstr, str 8 */
				    "\xda\x00\x00\xda\x00\x02\xc1\xc1"             /* 2: str 16 */
				    "\xdb\x00\x00\x00\x00\xdb\x00\x00\x00\x01\xc1" /* 2: str 32 */
				    "\xc4\x00\xc4\x01\xc1\xc5\x00\x01\xc1"         /* 3: bin 8 and 16 */
				    "\xc6\x00\x00\x00\x01\xd4"                     /* bin 32 */
				    "\x90\x92\x01\x91\xc0"                         /* 2: fixarray */
				    "\xdc\x00\x00\xdc\x00\x01\x90"                 /* 2: array 16 */
				    "\xdd\x00\x00\x00\x00\xdd\x00\x00\x00\x01\x80" /* 2: array 32 */
				    "\x80\x81\xa1k\x91\x80"                        /* 2: fixmap */
				    "\xde\x00\x00\xde\x00\x01\x01\x02"             /* 2: map 16 */
				    "\xdf\x00\x00\x00\x00\xdf\x00\x00\x00\x01\x80\x90" /* 2: map 32 */;
	struct buffer b = { 0 };

	cr_assert_eq(buffer_append(&b, bytes, sizeof bytes - 1), 0);
	return b;
}
