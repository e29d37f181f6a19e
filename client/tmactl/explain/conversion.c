/* SPDX-License-Identifier: Apache-2.0 */
/* Parses --from, --to and the sizes of both sides. The library computes the strides and splits. */
#include "conversion.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OF_DST = 1,
	OF_SRC = 2,
	OF_BOTH = OF_DST | OF_SRC,
};

/* The options whose values are numbers. Each sets a member of struct tma_layout_cache, of one side or of
 * both. */
static const struct number_option {
	int opt;
	const char *name;
	unsigned sides; /* OF_DST, OF_SRC or both */
	size_t member;  /* offset in struct tma_layout_cache */
	bool is_narrow; /* the member is a uint32_t; false: an int64_t */
	int64_t least;
	bool is_needed; /* a conversion of a KV cache cannot do without it */
} numbers[] = {
#define MEMBER(name) offsetof(struct tma_layout_cache, name)
	{ OPT_LAYERS, "layers", OF_BOTH, MEMBER(layers), false, 1, false },
	{ OPT_KV, "kv", OF_BOTH, MEMBER(kv), false, 1, false },
	{ OPT_BLOCKS, "blocks", OF_BOTH, MEMBER(blocks), false, 1, false },
	{ OPT_TOKENS, "tokens", OF_BOTH, MEMBER(tokens), false, 1, true },
	{ OPT_HEADS, "heads", OF_BOTH, MEMBER(heads), false, 1, true },
	{ OPT_HEAD_SIZE, "head-size", OF_BOTH, MEMBER(head_size), false, 1, true },
	{ OPT_HEAD_GROUP, "group", OF_BOTH, MEMBER(group), false, 1, false },
	{ OPT_TP, "tp", OF_DST, MEMBER(ranks), true, 1, false },
	{ OPT_RANK, "rank", OF_DST, MEMBER(rank), true, 0, false },
	{ OPT_FROM_TP, "from-tp", OF_SRC, MEMBER(ranks), true, 1, false },
	{ OPT_FROM_RANK, "from-rank", OF_SRC, MEMBER(rank), true, 0, false },
#undef MEMBER
};

static void number_put(struct tma_layout_cache *cache, const struct number_option *o, int64_t value)
{
	char *member = (char *)cache + o->member;

	if (o->is_narrow)
		memcpy(member, &(uint32_t){ (uint32_t)value }, sizeof(uint32_t));
	else
		memcpy(member, &value, sizeof value);
}

static int number_set(struct conversion *c, const struct number_option *o, const char *text,
                      struct failure *f)
{
	long long value;
	char *end;

	c->given = c->size = o->name;
	errno = 0;
	value = strtoll(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || value < o->least || value > UINT32_MAX)
		return fail(f, EXIT_USAGE, "--%s %s: expected a whole number from %" PRId64 " to %u", o->name,
		            text, o->least, UINT32_MAX);
	if (o->sides & OF_DST)
		number_put(&c->dst, o, value);
	if (o->sides & OF_SRC)
		number_put(&c->src, o, value);
	return 0;
}

static int layout_set(struct conversion *c, struct tma_layout_cache *cache, const char *name,
                      const char *text, struct failure *f)
{
	c->given = name;
	cache->layout = tma_layout_find(text);
	if (!cache->layout)
		return fail(f, EXIT_USAGE, "--%s %s: there is no such layout; tmactl layouts lists them",
		            name, text);
	return 0;
}

int conversion_set(struct conversion *c, int opt, const char *text, struct failure *f)
{
	if (opt == OPT_FROM)
		return layout_set(c, &c->src, "from", text, f);
	if (opt == OPT_TO)
		return layout_set(c, &c->dst, "to", text, f);
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (numbers[i].opt == opt)
			return number_set(c, &numbers[i], text, f);
	return 1;
}

static int check_needed(const struct conversion *c, const enum tma_dtype *dtype, struct failure *f)
{
	const char *missing = !c->src.layout ? "from" : !c->dst.layout ? "to" : !dtype ? "dtype" : NULL;

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !missing; i++) {
		int64_t value;

		memcpy(&value, (const char *)&c->dst + numbers[i].member, sizeof value);
		if (numbers[i].is_needed && !value)
			missing = numbers[i].name;
	}
	return missing ? fail(f, EXIT_USAGE, "--%s: a conversion needs --%s too", c->given, missing) : 0;
}

/* ---- KV caches ---------------------------------------------------------------------------------------- */

static int cache_init(struct conversion *c, tma_client *client, const enum tma_dtype *dtype,
                      struct transform_request *ret, struct failure *f)
{
	if (check_needed(c, dtype, f) < 0)
		return -1;
	c->dst.dtype = c->src.dtype = *dtype;
	if (tma_layout_convert(client, &c->dst, NULL, &c->src, NULL, &c->move) < 0)
		return fail(f, EXIT_USAGE, "%s", tma_last_error(client));
	*ret = (struct transform_request){ .dst = c->move.dst, .src = c->move.src };
	ret->transform = (struct tma_transform){ .dst = &ret->dst, .src = &ret->src };
	return 0;
}

/* ---- Blocked tensors ---------------------------------------------------------------------------------- */

static bool is_blocked(const struct tma_layout_cache *side)
{
	return side->layout && tma_layout_is_blocked(side->layout);
}

bool conversion_is_blocked(const struct conversion *c)
{
	return is_blocked(&c->dst) || is_blocked(&c->src);
}

static int check_blocked(const struct conversion *c, const enum tma_dtype *dtype, const struct npy *plain,
                         struct failure *f)
{
	const bool is_dst = is_blocked(&c->dst);
	const char *name = is_dst ? "to" : "from";
	const char *layout = tma_layout_name(is_dst ? c->dst.layout : c->src.layout);

	if (c->dst.layout && c->src.layout)
		return fail(f, EXIT_USAGE,
		            "--%s %s: a blocked layout is converted from or to a plain tensor; omit --%s",
		            name, layout, is_dst ? "from" : "to");
	if (c->size)
		return fail(f, EXIT_USAGE, "--%s %s: a blocked tensor is described by --shape; omit --%s",
		            name, layout, c->size);
	if (!dtype || !plain)
		return fail(f, EXIT_USAGE, "--%s: a conversion needs --%s too", name,
		            dtype ? "shape" : "dtype");
	return 0;
}

static int blocked_init(struct conversion *c, tma_client *client, const enum tma_dtype *dtype,
                        const struct npy *plain, struct transform_request *ret, struct failure *f)
{
	const bool is_dst = is_blocked(&c->dst);
	struct tma_tensor tensor = { 0 }, blocked = { 0 };
	struct tma_layout_blocking blocking;
	struct view_splits splits;

	if (check_blocked(c, dtype, plain, f) < 0)
		return -1;
	if (tma_layout_split(client, is_dst ? c->dst.layout : c->src.layout, plain->rank, plain->shape,
	                     &blocking) < 0)
		return fail(f, EXIT_USAGE, "%s", tma_last_error(client));
	tensor.dtype = blocked.dtype = *dtype;
	tensor.rank = plain->rank;
	blocked.rank = blocking.rank;
	memcpy(tensor.shape, plain->shape, (size_t)plain->rank * sizeof *tensor.shape);
	memcpy(blocked.shape, blocking.shape, sizeof blocked.shape);
	splits.n = blocking.n_split;
	memcpy(splits.pair, blocking.split, sizeof splits.pair);

	*ret =
	    (struct transform_request){ .dst = is_dst ? blocked : tensor, .src = is_dst ? tensor : blocked };
	*(is_dst ? &ret->src_split : &ret->dst_split) = splits;
	memcpy(ret->perm, is_dst ? blocking.perm : blocking.inverse, sizeof ret->perm);
	c->move.dst = ret->dst;
	c->move.src = ret->src;
	transform_request_point(ret, true, false);
	return 0;
}

int conversion_init(struct conversion *c, const enum tma_dtype *dtype, const struct npy *plain,
                    struct transform_request *ret, struct failure *f)
{
	tma_client *client = tma_new();
	int rc;

	if (!client)
		return fail(f, EXIT_FAILED, "out of memory");
	rc = conversion_is_blocked(c) ? blocked_init(c, client, dtype, plain, ret, f)
	                              : cache_init(c, client, dtype, ret, f);
	tma_free(client);
	return rc;
}

/* ---- In words ----------------------------------------------------------------------------------------- */

static void print_side(const struct tma_layout_cache *cache)
{
	if (!cache->layout) {
		printf("a plain tensor");
		return;
	}
	printf("%s [%s]", tma_layout_name(cache->layout), tma_layout_order(cache->layout));
	if (cache->ranks > 1)
		printf(" of rank %u of %u", cache->rank, cache->ranks);
}

static void print_shape(const struct tma_tensor *tensor)
{
	for (int d = 0; d < tensor->rank; d++)
		printf("%s%" PRId64, d ? ", " : "[", tensor->shape[d]);
	printf("]");
}

void conversion_print(const struct conversion *c, const char *label)
{
	printf("%s", label);
	print_side(&c->src);
	printf(" to ");
	print_side(&c->dst);
	printf("\n%*s", (int)strlen(label), "");
	print_shape(&c->move.src);
	if (conversion_is_blocked(c)) {
		printf(" to ");
		print_shape(&c->move.dst);
	}
	printf(" of %s\n", tma_dtype_name(c->move.src.dtype));
}
