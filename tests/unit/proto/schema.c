/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the rules that every row of schema.def has to follow. */
#include "proto/schema.h"

#include <string.h>

#include <criterion/criterion.h>

static const struct message *const messages[] = {
#define MESSAGE(m, doc) &m##_message,
#include "proto/schema.def"
};

#define N_MESSAGES (sizeof messages / sizeof *messages)

Test(schema, messages_are_sound)
{
	for (size_t i = 0; i < N_MESSAGES; i++) {
		const struct message *m = messages[i];

		for (size_t j = 0; j < i; j++)
			cr_expect_str_neq(m->name, messages[j]->name, "message %s twice", m->name);
		cr_expect_lt(m->n_fields, 64u, "%s: %u fields do not fit `has`", m->name, m->n_fields);
		cr_expect_null(m->fields[m->n_fields].name, "%s: not closed", m->name);
		for (uint32_t f = 0; f < m->n_fields; f++) {
			const struct field *field = &m->fields[f];
			bool nested = field->kind == FIELD_KIND_MESSAGE ||
			              field->kind == FIELD_KIND_OPERAND || field->kind == FIELD_KIND_LIST;

			for (uint32_t g = 0; g < f; g++)
				cr_expect_str_neq(field->name, m->fields[g].name, "%s.%s twice", m->name,
				                  field->name);
			cr_expect_eq(!!(m->needed & (UINT64_C(1) << f)), field->required, "%s.%s: needed",
			             m->name, field->name);
			cr_expect_eq(nested, !!field->inner, "%s.%s: inner", m->name, field->name);
			cr_expect(field->doc && *field->doc, "%s.%s: no meaning", m->name, field->name);
			cr_expect(field->offset >= sizeof(uint64_t) && field->offset < m->size,
			          "%s.%s: offset", m->name, field->name);
		}
	}
}

Test(schema, methods_are_sound)
{
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *m = &methods[i];
		uint64_t all = (UINT64_C(1) << m->params->n_fields) - 1;

		cr_expect_eq((int)m->id, i, "%s: id", m->name);
		cr_expect_eq(method_find(m->name, strlen(m->name)), m, "%s: not found by its name", m->name);
		cr_expect_str_eq(m->name, method_names[i]);
		cr_expect_eq(m->requires & ~m->accepts, 0, "%s requires what it does not accept", m->name);
		cr_expect_eq(m->accepts & ~all, 0, "%s accepts what %s has not", m->name, m->params->name);
		cr_expect_leq(m->params->size, sizeof(union params), "%s: params do not fit", m->name);
		if (m->accepts)
			cr_expect_eq(m->params->needed & ~m->requires, 0,
			             "%s: the codec always sends REQUIRED", m->name);
	}
}

/* Fails if decoding a message would need memory for an array of any length. Arrays of maps are decoded one by
 * one. */
static void expect_decodable(const struct message *m)
{
	for (const struct field *f = m->fields; f->name; f++) {
		cr_expect(f->kind != FIELD_KIND_NAMES && f->kind != FIELD_KIND_COUNTERS,
		          "%s.%s is of a kind that is never decoded", m->name, f->name);
		if (f->kind == FIELD_KIND_MESSAGE || f->kind == FIELD_KIND_LIST)
			expect_decodable(f->inner);
	}
}

Test(schema, parameters_can_be_decoded)
{
	for (int i = 0; i < METHOD_COUNT; i++)
		expect_decodable(methods[i].params);
}

Test(schema, unknown_methods_are_not_found)
{
	cr_expect_null(method_find("", 0));
	cr_expect_null(method_find("copyx", 5));
	cr_expect_null(method_find("cop", 3));
	cr_expect_null(method_find("copy\0", 5));
	cr_expect_not_null(method_find("copyx", 4));
}
