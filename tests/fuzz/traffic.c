/* Fields by their kinds; then tensors that agree with each other. */
#include "traffic.h"

#include <assert.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/rpc.h"
#include "tests/support/oracle.h"

static uint64_t below(uint64_t *random, uint64_t n)
{
	return oracle_random(random) % n;
}

uint64_t traffic_region(unsigned n)
{
	return (uint64_t)n << 20 | (n + 1);
}

/* ---- Any values --------------------------------------------------------------------------------------- */

/* Small ones, powers of two and their neighbours, anything. */
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

static void fill_field(const struct field *field, void *at, uint64_t *random)
{
	static const struct counter counters[] = { { "one", 1 }, { "", 0 }, { "most", UINT64_MAX } };
	static const char *const names[] = { "copy", "", "pad" };
	static union {
		struct msg_rule rules[2];
		struct msg_latency_bucket bars[2];
	} inner;
	struct int_list *ints;

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
	case FIELD_KIND_REGION_KIND:
	case FIELD_KIND_REGION_STATE:
		*(unsigned *)at = (unsigned)below(random, codec_name_sets[field->kind].n);
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
	case FIELD_KIND_MESSAGE:
		traffic_fill(field->inner, field->inner->needed | (uint32_t)oracle_random(random), at,
		             random);
		break;
	case FIELD_KIND_LIST:
		assert(2 * field->inner->size <= sizeof inner);
		for (int i = 0; i < 2; i++)
			traffic_fill(field->inner, ~0u, (char *)&inner + i * field->inner->size, random);
		*(struct message_list *)at = (struct message_list){ &inner, (uint32_t)below(random, 3) };
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

void traffic_fill(const struct message *message, uint32_t fields, void *value, uint64_t *random)
{
	memset(value, 0, message->size);
	fields &= codec_all_fields(message);
	*(uint32_t *)value = fields;
	for (uint32_t i = 0; i < message->n_fields; i++)
		if (fields & (1u << i))
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

/* Any transform of the oracle's, as far as the method has its arguments. */
static void fill_transform(struct msg_transform *p, const struct method *method, uint64_t *random)
{
	struct oracle_case c;
	struct transform_spec *spec = &c.spec;
	unsigned dst = (unsigned)below(random, TRAFFIC_REGIONS),
		 src = (unsigned)below(random, TRAFFIC_REGIONS);

	oracle_random_case(oracle_random(random), &c);
	*p = (struct msg_transform){ .has = F(transform, dst) | F(transform, src) };
	if (!(method->accepts & F(transform, perm)))
		spec->n_perm = -1;
	else if (spec->n_perm >= 0 || (method->requires & F(transform, perm)))
		p->has |= F(transform, perm);
	if (!(method->accepts & F(transform, before)))
		spec->n_before = spec->n_after = -1;
	else if (spec->n_before >= 0 || (method->requires & F(transform, before)))
		p->has |= F(transform, before) | F(transform, after) | F(transform, mode);
	/* Without some of its arguments it makes another shape. */
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

static void fill_params(union params *params, const struct method *method, uint64_t *random)
{
	uint32_t fields = method->requires | ((uint32_t)oracle_random(random) & method->accepts);

	traffic_fill(method->params, fields, params, random);
	if (method->params == &transform_message && below(random, 8))
		fill_transform(&params->transform, method, random);
	if (method->params == &region_release_message && below(random, 8))
		params->region_release.region = traffic_region((unsigned)below(random, TRAFFIC_REGIONS));
	if (method->params == &region_create_message && below(random, 4)) {
		params->region_create.size = 1 + below(random, TRAFFIC_SIZE);
		params->region_create.kind = REGION_KIND_MEMFD;
	}
	if (method->params == &region_register_message && below(random, 4)) {
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
