/* SPDX-License-Identifier: Apache-2.0 */
/* Fills fields by their kinds, then makes the tensors of a request consistent with each other. */
#include "traffic.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

#include "proto/wire/codec.h"
#include "proto/wire/rpc.h"
#include "tests/support/oracle.h"
#include "tests/support/split_case.h"
#include "traffic_cast.h"

static uint64_t below(uint64_t *random, uint64_t n)
{
	return oracle_random(random) % n;
}

uint64_t traffic_region(unsigned n)
{
	return (uint64_t)n << 20 | (n + 1);
}

/* ---- Any values --------------------------------------------------------------------------------------- */

/* Draws small numbers, powers of two and their neighbours, or anything. */
static uint64_t any_number(uint64_t *random)
{
	switch (below(random, 4)) {
	case 0:
		return below(random, 4);
	case 1:
		return (UINT64_C(1) << below(random, 64)) - below(random, 2);
	case 2:
		return below(random, TRAFFIC_SIZE);
	default:
		return oracle_random(random) >> below(random, 64);
	}
}

static double any_real(uint64_t *random)
{
	static const double reals[] = { 0,       -0.0,  1,   -1,        0.5,        1e300,
		                        -1e-300, 65504, 448, 1.0 / 0.0, -1.0 / 0.0, 0.0 / 0.0 };

	return reals[below(random, sizeof reals / sizeof *reals)];
}

static struct scalar any_scalar(uint64_t *random)
{
	switch (below(random, 4)) {
	case 0:
		return (struct scalar){ .kind = SCALAR_UNSIGNED, .u = any_number(random) };
	case 1:
		return (struct scalar){ .kind = SCALAR_SIGNED, .i = -1 - (int64_t)(any_number(random) >> 1) };
	case 2:
		return (struct scalar){ .kind = SCALAR_FLOATING, .re = any_real(random) };
	default:
		return (
		    struct scalar){ .kind = SCALAR_COMPLEX, .re = any_real(random), .im = any_real(random) };
	}
}

static struct bytes any_bytes(uint64_t *random)
{
	static const char bytes[128] = "GPU-00000000-0000-0000-0000-00000000000F\0\xff\xc1\"\\\n";
	static const uint8_t sizes[] = { 0, 1, 5, 40, 63, 64, 65, 128 };

	return (struct bytes){ bytes, sizes[below(random, sizeof sizes)] };
}

/* Draws only a few items, because they must fit into a request. */
static struct item_list any_items(uint64_t *random)
{
	static struct submit_item items[3];
	const uint64_t order = F(transform, wait) | F(transform, signal) | F(transform, reply);

	for (int i = 0; i < 3; i++) {
		items[i].is_run = below(random, 2);
		if (items[i].is_run)
			traffic_fill(&plan_run_message, plan_run_message.needed, &items[i].run, random);
		else
			traffic_fill(&transform_message,
			             transform_message.needed | (oracle_random(random) & ~order),
			             &items[i].transform, random);
	}
	return (struct item_list){ .items = items, .n = (uint32_t)below(random, 4) };
}

static struct region_place any_place(uint64_t *random)
{
	return (struct region_place){ .region = below(random, 4) ? traffic_region((unsigned)below(random, 2))
		                                                 : any_number(random),
		                      .offset = any_number(random) };
}

static void fill_field(const struct field *field, void *at, uint64_t *random)
{
	static const struct counter counters[] = { { "one", 1 }, { "", 0 }, { "most", UINT64_MAX } };
	static const char *const names[] = { "copy", "", "pad" };
	static union {
		struct msg_rule rules[2];
		struct msg_alternative alternatives[2];
		struct msg_latency_bucket bars[2];
		struct msg_item_error errors[2];
		struct msg_device_info devices[2];
		struct msg_device_link links[2];
		struct msg_user_stats users[2];
		struct msg_tensor tensors[2];
		struct msg_slice slices[2];
	} lists[8]; /* room for the few lists of a message, including nested ones */
	static unsigned taken;
	static const int32_t codes[] = { 0, -1, -STATUS_COUNT, INT32_MIN, 1, INT32_MAX };
	struct int_list *ints;
	char *inner;

	switch (field->kind) {
	case FIELD_KIND_BOOL:
		*(bool *)at = below(random, 2);
		break;
	case FIELD_KIND_UINT:
		*(uint64_t *)at = any_number(random);
		break;
	case FIELD_KIND_STRING:
	case FIELD_KIND_BINARY:
		*(struct bytes *)at = any_bytes(random);
		break;
	case FIELD_KIND_DTYPE:
	case FIELD_KIND_PAD_MODE:
	case FIELD_KIND_CAST:
	case FIELD_KIND_REGION_KIND:
	case FIELD_KIND_REGION_STATE:
	case FIELD_KIND_COMPLETION:
	case FIELD_KIND_PRIORITY:
		*(unsigned *)at = (unsigned)below(random, codec_name_sets[field->kind].n);
		break;
	case FIELD_KIND_DEVICE:
		*(struct device_name *)at = below(random, 2)
		                                ? (struct device_name){ .uuid = any_bytes(random) }
		                                : (struct device_name){ .number = any_number(random) };
		break;
	case FIELD_KIND_INTS:
		ints = at;
		ints->n = (uint32_t)below(random, below(random, 8) ? 4 : TENSOR_MAX_RANK + 1);
		for (uint32_t i = 0; i < ints->n; i++)
			ints->v[i] = (int64_t)(any_number(random) >> 1) * (below(random, 3) ? 1 : -1);
		break;
	case FIELD_KIND_VALUE:
		*(struct scalar *)at = any_scalar(random);
		break;
	case FIELD_KIND_PLACE:
		*(struct region_place *)at = any_place(random);
		break;
	case FIELD_KIND_ITEMS:
		*(struct item_list *)at = any_items(random);
		break;
	case FIELD_KIND_CODES:
		*(struct code_list *)at =
		    (struct code_list){ .codes = codes, .n = (uint32_t)below(random, 7) };
		break;
	case FIELD_KIND_OPERAND:
		traffic_fill(field->inner, field->inner->needed | oracle_random(random), at, random);
		((struct msg_operand *)at)->number = any_scalar(random);
		break;
	case FIELD_KIND_MESSAGE:
		traffic_fill(field->inner, field->inner->needed | oracle_random(random), at, random);
		break;
	case FIELD_KIND_LIST:
		inner = (char *)&lists[taken++ % 8];
		assert(2 * field->inner->size <= sizeof lists[0]);
		for (int i = 0; i < 2; i++)
			traffic_fill(field->inner, ~0u, inner + i * field->inner->size, random);
		*(struct message_list *)at =
		    (struct message_list){ .items = inner, .n = (uint32_t)below(random, 3) };
		break;
	case FIELD_KIND_NAMES:
		*(struct name_list *)at = (struct name_list){ names, (uint32_t)below(random, 4) };
		break;
	case FIELD_KIND_COUNTERS:
		*(struct counter_list *)at = (struct counter_list){ counters, (uint32_t)below(random, 4) };
		break;
	case FIELD_KIND_COUNT:
		assert(!"a field without a kind");
	}
}

void traffic_fill(const struct message *message, uint64_t fields, void *value, uint64_t *random)
{
	memset(value, 0, message->size);
	fields &= codec_all_fields(message);
	*(uint64_t *)value = fields;
	for (uint32_t i = 0; i < message->n_fields; i++)
		if (fields & (UINT64_C(1) << i))
			fill_field(&message->fields[i], (char *)value + message->fields[i].offset, random);
}

/* ---- Transforms that can succeed ---------------------------------------------------------------------- */

static struct int_list ints_of(int n, const int64_t *v)
{
	struct int_list list = { .n = n < 0 ? 0 : (uint32_t)n };

	memcpy(list.v, v, list.n * sizeof *v);
	return list;
}

static struct msg_tensor tensor_of(const struct tensor_layout *layout, unsigned region, uint64_t offset,
                                   bool strided)
{
	return (struct msg_tensor){
		.has = F(tensor, region) | F(tensor, offset) | F(tensor, dtype) | F(tensor, shape) |
		       (strided ? F(tensor, strides) : 0),
		.region = traffic_region(region),
		.offset = offset,
		.dtype = layout->dtype,
		.shape = ints_of(layout->rank, layout->shape),
		.strides = ints_of(layout->rank, layout->stride),
	};
}

static uint64_t some_region(uint64_t *random)
{
	return traffic_region((unsigned)below(random, TRAFFIC_REGIONS));
}

static struct msg_wait wait_of(uint64_t *random)
{
	return (struct msg_wait){ .has = F(wait, region) | F(wait, offset) | F(wait, value) |
		                         (below(random, 2) ? F(wait, deadline_ms) : 0),
		                  .region = some_region(random),
		                  .offset = 8 * below(random, TRAFFIC_SIZE / 8),
		                  .value = below(random, 3),
		                  .deadline_ms = below(random, 20) };
}

static struct msg_signal signal_of(uint64_t *random)
{
	return (struct msg_signal){ .has = F(signal, region) | F(signal, offset) | F(signal, value),
		                    .region = some_region(random),
		                    .offset = 8 * below(random, TRAFFIC_SIZE / 8),
		                    .value = below(random, 3) };
}

/* Gives a quarter of the requests timeline points that may be reached, completions and priorities. unit is
 * the bit of the first such field in *has. */
static void set_order(struct order_fields *order, uint64_t *has, uint64_t unit, uint64_t *random)
{
	if (below(random, 4) != 0)
		return;
	*has |= below(random, UINT64_C(1) << FIELD_COUNT_order) * unit;
	*order = (struct order_fields){ .wait = wait_of(random),
		                        .signal = signal_of(random),
		                        .reply = (enum completion)below(random, COMPLETION_COUNT),
		                        .priority = (enum job_priority)below(random, JOB_PRIORITY_COUNT),
		                        .multiprocessors = below(random, 4),
		                        .host_threads = below(random, 4),
		                        .deadline_ms = below(random, 2) * below(random, 1000000) };
}

#define SET_ORDER(m, p, random) set_order(&(p)->order, &(p)->has, F(m, wait), random)

static void set_split(struct msg_tensor *tensor, const struct split_list *list)
{
	tensor->has |= F(tensor, split);
	tensor->split.n = 2 * (uint32_t)list->n;
	for (int i = 0; i < list->n; i++) {
		tensor->split.v[2 * i] = list->dim[i];
		tensor->split.v[2 * i + 1] = list->by[i];
	}
}

/* Fills in a transform between tensors with split dimensions. */
static void fill_split(struct msg_transform *p, uint64_t *random)
{
	struct split_case c;
	const struct transform_spec *spec = &c.c.spec;
	unsigned dst = (unsigned)below(random, TRAFFIC_REGIONS),
		 src = (unsigned)below(random, TRAFFIC_REGIONS);

	split_random_case(oracle_random(random), &c);
	*p = (struct msg_transform){ .has = F(transform, dst) | F(transform, src) | F(transform, mode) |
		                            F(transform, value) };
	if (spec->n_perm >= 0)
		p->has |= F(transform, perm);
	if (spec->n_before >= 0)
		p->has |= F(transform, before) | F(transform, after);
	p->perm = ints_of(spec->n_perm, spec->perm);
	p->before = ints_of(spec->n_before, spec->before);
	p->after = ints_of(spec->n_after, spec->after);
	p->mode = spec->mode;
	p->value = spec->value;
	p->dst = tensor_of(&spec->dst, dst, c.c.dst_offset, true);
	p->src = tensor_of(&spec->src, src, c.c.src_offset + (dst == src ? TRAFFIC_SIZE / 2 : 0), true);
	set_split(&p->dst, &c.dst);
	set_split(&p->src, &c.src);
}

/* Adds further tensors like dst, in the same places or others. */
static void fill_further(struct msg_transform *p, uint64_t *random)
{
	static struct msg_tensor further[4];

	p->has |= F(transform, further_dst);
	p->further_dst = (struct message_list){ .items = further, .n = (uint32_t)below(random, 5) };
	for (uint32_t i = 0; i < p->further_dst.n; i++) {
		further[i] = p->dst;
		if (below(random, 8))
			further[i].has &= ~F(tensor, split);
		if (below(random, 2))
			further[i].region = some_region(random);
		further[i].has |= F(tensor, offset);
		further[i].offset = p->dst.offset + below(random, TRAFFIC_SIZE / 2);
	}
}

/* Fills in a random transform of the oracle, as far as the method has the arguments. */
static void fill_transform(struct msg_transform *p, const struct method *method, uint64_t *random)
{
	struct oracle_case c;
	struct transform_spec *spec = &c.spec;
	unsigned dst = (unsigned)below(random, TRAFFIC_REGIONS),
		 src = (unsigned)below(random, TRAFFIC_REGIONS);

	if ((method->accepts & F(transform, before)) && (method->accepts & F(transform, perm)) &&
	    below(random, 4) == 0) {
		fill_split(p, random);
		return;
	}
	*p = (struct msg_transform){ .has = F(transform, dst) | F(transform, src) };
	if ((method->accepts & F(transform, cast)) && below(random, 4) == 0)
		traffic_cast_transform(&c, p, method->id != METHOD_plan_prepare, random);
	else
		oracle_random_case(oracle_random(random), &c);
	if (!(method->accepts & F(transform, perm)))
		spec->n_perm = -1;
	else if (spec->n_perm >= 0 || (method->requires & F(transform, perm)))
		p->has |= F(transform, perm);
	if (!(method->accepts & F(transform, before)))
		spec->n_before = spec->n_after = -1;
	else if (spec->n_before >= 0 || (method->requires & F(transform, before)))
		p->has |= F(transform, before) | F(transform, after) | F(transform, mode);
	/* Omitting some arguments of a transform changes the shape of its result. */
	for (int d = 0; d < spec->src.rank && !(method->accepts & F(transform, before)); d++)
		spec->dst.shape[d] = spec->src.shape[spec->n_perm < 0 ? d : spec->perm[d]];
	p->perm = ints_of(spec->src.rank, spec->perm);
	p->before = ints_of(spec->src.rank, spec->before);
	p->after = ints_of(spec->src.rank, spec->after);
	p->mode = spec->mode;
	p->value = spec->value;
	if ((method->accepts & F(transform, value)) && spec->mode == PAD_MODE_CONSTANT)
		p->has |= F(transform, value);
	p->dst = tensor_of(&spec->dst, dst, c.dst_offset, method->accepts & F(transform, before));
	p->src =
	    tensor_of(&spec->src, src, c.src_offset + (dst == src ? TRAFFIC_SIZE / 2 : 0), below(random, 4));
}

/* Fills in a transform without places. */
static void fill_prepare(struct msg_transform *p, const struct method *method, uint64_t *random)
{
	fill_transform(p, method, random);
	p->dst.has &= ~(F(tensor, region) | F(tensor, offset));
	p->src.has &= ~(F(tensor, region) | F(tensor, offset));
}

/* Draws up to five places, most of which two tables may use at once. */
static struct bytes places_of(uint64_t *random, uint64_t offset)
{
	static uint64_t words[2][10];
	static unsigned taken;
	uint64_t *at = words[taken++ % 2];
	const uint64_t n = below(random, 8) ? 2 : below(random, 6);

	for (uint64_t i = 0; i < n; i++) {
		at[2 * i] = htole64(below(random, 16) ? some_region(random) : any_number(random));
		at[2 * i + 1] = htole64(offset + 2048 * i + 8 * below(random, 32));
	}
	return (struct bytes){ (const char *)at, 16 * n - (below(random, 32) == 0 && n > 0) };
}

static uint64_t some_table(uint64_t *random)
{
	return traffic_region((unsigned)below(random, 2));
}

static void fill_run(struct msg_plan_run *p, uint64_t *random)
{
	*p =
	    (struct msg_plan_run){ .has = F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src),
		                   .plan = traffic_region((unsigned)below(random, 2)),
		                   .dst = { some_region(random), TRAFFIC_SIZE / 4 + below(random, 32) },
		                   .src = { some_region(random), TRAFFIC_SIZE / 4 * 3 + below(random, 32) } };
	if (below(random, 4) == 0)
		traffic_cast_run(p, random);
}

/* Fills in two tables, or one place for all. */
static void fill_table_run(struct msg_plan_run *p, uint64_t *random)
{
	fill_run(p, random);
	if (below(random, 3))
		return;
	p->has = (p->has & ~F(plan_run, dst)) | F(plan_run, dst_table);
	p->dst_table = some_table(random);
	if (below(random, 4) == 0)
		return;
	p->has = (p->has & ~F(plan_run, src)) | F(plan_run, src_table);
	p->src_table = some_table(random);
}

static void fill_items(struct item_list *list, uint64_t *random)
{
	static struct submit_item items[3];

	for (int i = 0; i < 3; i++) {
		items[i].is_run = below(random, 2);
		if (items[i].is_run)
			fill_table_run(&items[i].run, random);
		else
			fill_transform(&items[i].transform, &methods[METHOD_explain], random);
	}
	*list = (struct item_list){ .items = items, .n = (uint32_t)below(random, 4) };
}

/* Uses tables on both sides; the offsets of blocks are added to those of the places. */
static void use_tables(struct msg_blocks *p, uint64_t *random)
{
	p->dst.has &= ~F(tensor, region);
	p->src.has &= ~F(tensor, region);
	if (below(random, 2)) {
		p->has |= F(blocks, dst_table);
		p->dst_table = some_table(random);
	} else {
		p->has |= F(blocks, dst_places);
		p->dst_places = places_of(random, 0);
	}
	p->has |= F(blocks, src_places);
	p->src_places = places_of(random, 0);
}

/* Fills in up to four blocks of a few hundred bytes, listed in the message. */
static void fill_blocks(struct msg_blocks *p, uint64_t *random)
{
	static int32_t index[4];
	struct msg_tensor block = { .has = F(tensor, region) | F(tensor, offset) | F(tensor, dtype) |
		                           F(tensor, shape),
		                    .dtype = (enum dtype)below(random, DTYPE_COUNT),
		                    .shape = { .n = 2, .v = { 8, 8 } } };

	for (int i = 0; i < 4; i++)
		index[i] = (int32_t)below(random, 6) - 1;
	*p = (struct msg_blocks){ .has = F(blocks, dst) | F(blocks, src) | F(blocks, index),
		                  .dst = block,
		                  .src = block,
		                  .index = { (const char *)index, 4 * below(random, 5) } };
	p->dst.region = some_region(random);
	p->dst.offset = 8 * below(random, 64);
	p->src.region = some_region(random);
	p->src.offset = TRAFFIC_SIZE / 2 + 8 * below(random, 64);
	if (below(random, 4) == 0)
		use_tables(p, random);
	if (below(random, 4) == 0)
		traffic_cast_blocks(p, random);
	if (below(random, 2)) {
		p->has |= F(blocks, perm) | F(blocks, limit);
		p->perm = (struct int_list){ .n = 2, .v = { 1, 0 } };
		p->limit = 1 + below(random, 6);
	}
}

/* Fills in allocations and memory of regions that may exist. Most sizes are those of allocations. */
static void fill_parts(struct msg_region_register *params, uint64_t *random)
{
	static struct msg_part parts[4];

	params->has = F(region_register, kind) | F(region_register, size) | F(region_register, parts);
	params->kind = REGION_KIND_CUDA_FD;
	params->size = 1 + below(random, TRAFFIC_SIZE);
	params->parts = (struct message_list){ .items = parts, .n = (uint32_t)below(random, 5) };
	for (uint32_t i = 0; i < params->parts.n; i++) {
		parts[i] = (struct msg_part){ .has = F(part, size),
			                      .size = below(random, 4) ? 2097152 : any_number(random) };
		if (below(random, 2))
			parts[i].has |= F(part, region);
		if (below(random, 4) == 0)
			parts[i].has |= F(part, offset);
		parts[i].region = some_region(random);
		parts[i].offset = below(random, 2) ? 2097152 : any_number(random);
	}
}

/* Draws boxes of a tensor of up to 8 by 8 so that they tile it more often than random boxes would. */
static void fill_slices(struct message_list *list, struct msg_slice slices[4], uint64_t at, uint64_t *random)
{
	const int rank = below(random, 8) ? 2 : (int)below(random, 4);
	const uint32_t n = 1 + (uint32_t)below(random, 4);

	*list = (struct message_list){ .items = slices, .n = below(random, 16) ? n : 0 };
	for (uint32_t i = 0; i < n; i++) {
		struct msg_slice *slice = &slices[i];

		*slice = (struct msg_slice){ .has = F(slice, tensor) | F(slice, start),
			                     .tensor = { .has = F(tensor, region) | F(tensor, offset) |
			                                        F(tensor, dtype) | F(tensor, shape),
			                                 .region = some_region(random),
			                                 .offset = at + 64 * i,
			                                 .dtype = DTYPE_UINT8,
			                                 .shape.n = (uint32_t)rank },
			                     .start.n = (uint32_t)rank };
		for (int d = 0; d < rank; d++) {
			slice->tensor.shape.v[d] = below(random, 16) ? 8 : (int64_t)below(random, 9);
			slice->start.v[d] = below(random, 16) ? 0 : (int64_t)below(random, 9);
		}
		if (rank > 0 && below(random, 2)) {
			slice->tensor.shape.v[0] = 8 / n;
			slice->start.v[0] = 8 / n * i;
		}
	}
}

static void fill_reshard(struct msg_reshard *params, uint64_t *random)
{
	static struct msg_slice slices[2][4];

	params->has = F(reshard, destinations) | F(reshard, sources);
	fill_slices(&params->destinations, slices[0], 0, random);
	fill_slices(&params->sources, slices[1], TRAFFIC_SIZE / 2, random);
}

static void fill_params(union params *params, const struct method *method, uint64_t *random)
{
	uint64_t fields = method->requires | (oracle_random(random) & method->accepts);

	traffic_fill(method->params, fields, params, random);
	if (method->id == METHOD_plan_prepare && below(random, 8)) {
		fill_prepare(&params->transform, method, random);
	} else if (method->params == &transform_message && below(random, 8)) {
		fill_transform(&params->transform, method, random);
		if ((method->accepts & F(transform, further_dst)) && below(random, 2))
			fill_further(&params->transform, random);
		if (method->accepts & F(transform, wait))
			SET_ORDER(transform, &params->transform, random);
	}
	if (method->params == &plan_run_message && below(random, 8)) {
		fill_table_run(&params->plan_run, random);
		SET_ORDER(plan_run, &params->plan_run, random);
	}
	if (method->params == &table_prepare_message && below(random, 8))
		params->table_prepare.places = places_of(random, TRAFFIC_SIZE / 4 * below(random, 4));
	if (method->params == &table_release_message && below(random, 8))
		params->table_release.table = some_table(random);
	if (method->params == &plan_release_message && below(random, 8))
		params->plan_release.plan = some_region(random);
	if (method->params == &submit_message && below(random, 8)) {
		params->submit.has = F(submit, items);
		fill_items(&params->submit.items, random);
		SET_ORDER(submit, &params->submit, random);
	}
	if (method->params == &blocks_message && below(random, 8)) {
		fill_blocks(&params->blocks, random);
		SET_ORDER(blocks, &params->blocks, random);
	}
	if (method->params == &reshard_message && below(random, 8)) {
		fill_reshard(&params->reshard, random);
		SET_ORDER(reshard, &params->reshard, random);
	}
	if (method->params == &region_release_message && below(random, 8))
		params->region_release.region = some_region(random);
	if (method->params == &region_create_message && below(random, 4)) {
		params->region_create.size = 1 + below(random, TRAFFIC_SIZE);
		params->region_create.kind = REGION_KIND_MEMFD;
	}
	if (method->params == &region_register_message && below(random, 4) == 0)
		fill_parts(&params->region_register, random);
	else if (method->params == &region_register_message && below(random, 4)) {
		params->region_register.has &= ~F(region_register, parts);
		params->region_register.kind = REGION_KIND_MEMFD;
		params->region_register.offset = below(random, 2) ? 0 : below(random, TRAFFIC_SIZE);
		params->region_register.size = TRAFFIC_SIZE - params->region_register.offset;
	}
}

static size_t encode(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, const struct method *method,
                     const union params *params)
{
	struct buffer b = { 0 };
	size_t len;

	if (rpc_encode_request(&b, msgid, method, params) < 0 || buffer_len(&b) > TRAFFIC_MOST)
		assert(!"a request fits");
	len = buffer_len(&b);
	memcpy(ret, b.data + b.start, len);
	buffer_deinit(&b);
	return len;
}

size_t traffic_request_of(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, uint64_t *random, enum method_id id)
{
	union params params;

	fill_params(&params, &methods[id], random);
	return encode(ret, msgid, &methods[id], &params);
}

size_t traffic_request(uint8_t ret[TRAFFIC_MOST], uint32_t msgid, uint64_t *random,
                       const struct method **ret_method)
{
	enum method_id id = (enum method_id)below(random, METHOD_COUNT);

	*ret_method = &methods[id];
	return traffic_request_of(ret, msgid, random, id);
}

size_t traffic_register(uint8_t ret[TRAFFIC_MOST], uint32_t msgid)
{
	union params params = { .region_register = { .has =
		                                         F(region_register, kind) | F(region_register, size),
		                                     .kind = REGION_KIND_MEMFD,
		                                     .size = TRAFFIC_SIZE } };

	return encode(ret, msgid, &methods[METHOD_region_register], &params);
}
