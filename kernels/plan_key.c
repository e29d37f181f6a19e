/* SPDX-License-Identifier: Apache-2.0 */
/* Keys are packed here. Counts come before the items, so that no two layouts pack alike. */
#include "plan_key.h"

#include <assert.h>
#include <string.h>

/* The lists are short: a call would cost more than the loop. */
static inline void add(struct plan_key *key, const int64_t *values, int n)
{
	uint64_t *word = key->word + key->n;

	if (n <= 0)
		return;
	assert((uint32_t)n <= PLAN_KEY_WORDS - key->n);
	for (int i = 0; i < n; i++)
		word[i] = (uint64_t)values[i];
	key->n += (uint32_t)n;
}

void plan_key_add(struct plan_key *key, const int64_t *values, int n)
{
	add(key, values, n);
}

bool plan_key_is_same(const struct plan_key *a, const struct plan_key *b)
{
	return a->hash == b->hash && a->n == b->n && !memcmp(a->word, b->word, a->n * sizeof a->word[0]);
}

static uint64_t head_of(enum plan_kind kind, struct plan_places places)
{
	return (uint64_t)kind << 24 | (uint64_t)places.many << 16 | (uint64_t)places.dst << 8 | places.src;
}

/* The layout is read only if the operand is a tensor. */
static void add_operand(struct plan_key *key, enum operand_kind kind, const struct tensor_layout *layout)
{
	key->word[key->n++] = (uint64_t)kind;
	if (kind != OPERAND_TENSOR)
		return;
	key->word[key->n++] = (uint64_t)layout->dtype << 32 | (uint32_t)layout->rank;
	add(key, layout->shape, layout->rank);
	add(key, layout->stride, layout->rank);
}

static void add_result(struct plan_key *key, const struct amax_result_spec *result)
{
	add_operand(key, result->is_given ? OPERAND_TENSOR : OPERAND_NONE, &result->layout);
}

static void add_amax(struct plan_key *key, const struct amax_spec *amax)
{
	key->word[key->n++] = amax->is_given ? 1 + (uint64_t)amax->power_of_two : 0;
	if (!amax->is_given)
		return;
	memcpy(&key->word[key->n++], &amax->least, sizeof(amax->least));
	key->word[key->n++] = (uint64_t)amax->n_block;
	add(key, amax->block, amax->n_block);
	add_result(key, &amax->scale);
	add_result(key, &amax->inverse);
}

void plan_key_init(struct plan_key *key, const struct transform_spec *spec, struct plan_places places)
{
	const struct conversion_spec *conversion = &spec->conversion;
	const struct tensor_layout *dst = &spec->dst, *src = &spec->src;
	const int32_t head[] = {
		(int32_t)dst->dtype,
		(int32_t)src->dtype,
		dst->rank,
		src->rank,
		spec->n_perm,
		spec->n_before,
		spec->n_after,
		(int32_t)spec->mode,
		(int32_t)spec->value.kind,
		conversion->is_given ? 1 + (int32_t)conversion->cast : 0,
	};

	key->hash = 0;
	key->word[0] = head_of(PLAN_KIND_SPEC, places);
	memcpy(key->word + 1, head, sizeof head);
	key->n = 1 + sizeof head / (sizeof(uint64_t));
	key->word[key->n++] = spec->value.u;
	memcpy(&key->word[key->n++], &spec->value.im, sizeof spec->value.im);
	add(key, dst->shape, dst->rank);
	add(key, dst->stride, dst->rank);
	add(key, src->shape, src->rank);
	add(key, src->stride, src->rank);
	add(key, spec->perm, spec->n_perm);
	add(key, spec->before, spec->n_before);
	add(key, spec->after, spec->n_after);
	if (conversion->is_given || conversion->scale.kind || conversion->bias.kind ||
	    conversion->amax.is_given) {
		add_operand(key, conversion->scale.kind, &conversion->scale.layout);
		add_operand(key, conversion->bias.kind, &conversion->bias.layout);
		add_amax(key, &conversion->amax);
	}
}

void plan_key_init_round(struct plan_key *key, const struct transform *t, struct plan_places places)
{
	assert(!t->conversion.is);
	key->hash = 0;
	key->word[0] = head_of(PLAN_KIND_ROUND, places);
	key->word[1] = (uint64_t)t->rank << 32 | (uint64_t)t->element << 16 | (uint64_t)t->mode;
	key->word[2] = (uint64_t)t->src_shift;
	memcpy(&key->word[3], t->fill, sizeof t->fill);
	key->n = 3 + sizeof t->fill / (sizeof(uint64_t));
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];

		add(key,
		    (const int64_t[]){ axis->extent, axis->before, axis->source, axis->dst_stride,
		                       axis->src_stride },
		    5);
	}
}

void plan_key_init_of(struct plan_key *key, enum plan_kind kind, uint64_t serial, struct plan_places places)
{
	key->hash = 0;
	key->word[0] = head_of(kind, places);
	key->word[1] = serial;
	key->n = 2;
}
