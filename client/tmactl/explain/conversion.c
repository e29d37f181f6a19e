/* SPDX-License-Identifier: Apache-2.0 */
/* --from and --to, and the sizes that both sides have. The library makes the strides. */
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

/* The options that are numbers: a member of the cache of one side or of both. */
static const struct number_option {
	int opt;
	const char *name;
	unsigned sides;
	size_t member;
	bool is_narrow; /* of 32 bits */
	int64_t least;
	bool is_needed;
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

	c->given = o->name;
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
	if (!cache->layout || tma_layout_is_blocked(cache->layout))
		return fail(f, EXIT_USAGE, "--%s %s: not a layout of KV caches; tmactl layouts lists them",
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

int conversion_init(struct conversion *c, const enum tma_dtype *dtype, struct transform_request *ret,
                    struct failure *f)
{
	tma_client *client;
	int rc = check_needed(c, dtype, f);

	if (rc < 0)
		return rc;
	client = tma_new();
	if (!client)
		return fail(f, EXIT_FAILED, "out of memory");
	c->dst.dtype = c->src.dtype = *dtype;
	rc = tma_layout_convert(client, &c->dst, NULL, &c->src, NULL, &c->move);
	if (rc < 0)
		rc = fail(f, EXIT_USAGE, "%s", tma_last_error(client));
	tma_free(client);
	if (rc < 0)
		return rc;
	*ret = (struct transform_request){ .dst = c->move.dst, .src = c->move.src };
	ret->transform = (struct tma_transform){ .dst = &ret->dst, .src = &ret->src };
	return 0;
}

static void print_side(const struct tma_layout_cache *cache)
{
	printf("%s [%s]", tma_layout_name(cache->layout), tma_layout_order(cache->layout));
	if (cache->ranks > 1)
		printf(" of rank %u of %u", cache->rank, cache->ranks);
}

void conversion_print(const struct conversion *c, const char *label)
{
	printf("%s", label);
	print_side(&c->src);
	printf(" to ");
	print_side(&c->dst);
	printf("\n%*s", (int)strlen(label), "");
	for (int d = 0; d < c->move.src.rank; d++)
		printf("%s%" PRId64, d ? ", " : "[", c->move.src.shape[d]);
	printf("] of %s\n", tma_dtype_name(c->move.src.dtype));
}
