/* SPDX-License-Identifier: Apache-2.0 */
/* Each change picks a random item among those that it applies to. */
#include "spoil.h"

#include <stdbool.h>
#include <string.h>

#include "item.h"
#include "proto/schema.h"
#include "tests/support/oracle.h"

struct message_at {
	uint8_t *data;
	size_t len;
	size_t max;
	uint64_t *random;
	size_t n;
	struct item items[ITEM_MOST];
};

static uint32_t below(uint64_t *random, size_t n)
{
	return (uint32_t)(oracle_random(random) % n);
}

static bool is_container(const struct item *item)
{
	return item->type == ITEM_ARRAY || item->type == ITEM_MAP;
}

/* Returns a random item for which suits is true; NULL if there is none. */
static const struct item *pick(const struct message_at *m,
                               bool (*suits)(const struct message_at *, const struct item *))
{
	const struct item *chosen = NULL;
	uint32_t seen = 0;

	for (size_t i = 0; i < m->n; i++)
		if (suits(m, &m->items[i]) && below(m->random, ++seen) == 0)
			chosen = &m->items[i];
	return chosen;
}

static bool any(const struct message_at *m, const struct item *item)
{
	(void)m;
	(void)item;
	return true;
}

static bool is_key(const struct message_at *m, const struct item *item)
{
	return item->parent != ITEM_ROOT && m->items[item->parent].type == ITEM_MAP && item->place % 2 == 0;
}

static bool has_value(const struct message_at *m, const struct item *item)
{
	return !is_container(item) && !is_key(m, item);
}

static bool is_filled(const struct message_at *m, const struct item *item)
{
	(void)m;
	return is_container(item) && item->n > 0;
}

static bool is_counted(const struct message_at *m, const struct item *item)
{
	(void)m;
	return item->type >= ITEM_STR;
}

/* ---- Items of all kinds ------------------------------------------------------------------------------- */

struct text {
	const char *data;
	size_t len;
};
#define TEXT(bytes)                      \
	{                                \
		bytes, sizeof(bytes) - 1 \
	}

/* One item of each type and width, and of the types that the protocol does not use. */
static const struct text types[] = {
	TEXT("\xc0"),
	TEXT("\xc2"),
	TEXT("\xc3"),
	TEXT("\x07"),
	TEXT("\xff"),
	TEXT("\xcc\x80"),
	TEXT("\xd0\x80"),
	TEXT("\xca\x3f\x80\x00\x00"),
	TEXT("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x01"),
	TEXT("\xa0"),
	TEXT("\xa1"
	     "0"),
	TEXT("\xd9\x01x"),
	TEXT("\xda\x00\x01\xff"),
	TEXT("\xdb\x00\x00\x00\x01x"),
	TEXT("\xc4\x01\x00"),
	TEXT("\xc4\x00"),
	TEXT("\xc5\x00\x01\x00"),
	TEXT("\xc6\x00\x00\x00\x00"),
	TEXT("\x90"),
	TEXT("\x91\xc0"),
	TEXT("\x92\x01\x02"),
	TEXT("\xdc\x00\x01\x90"),
	TEXT("\xdd\x00\x00\x00\x00"),
	TEXT("\x80"),
	TEXT("\x81\xa1"
	     "a\x01"),
	TEXT("\x81\xc0\xc0"),
	TEXT("\xde\x00\x01\x01\x02"),
	TEXT("\xdf\x00\x00\x00\x00"),
	TEXT("\xd4\x01\x00"),
	TEXT("\xc7\x01\x05\x00"),
	TEXT("\xc1"),
};

static const uint64_t numbers[] = {
	0,
	1,
	2,
	3,
	7,
	8,
	15,
	16,
	31,
	32,
	33,
	63,
	64,
	65,
	127,
	128,
	255,
	256,
	4095,
	4096,
	4097,
	65535,
	65536,
	1 << 20,
	INT32_MAX,
	UINT64_C(1) << 31,
	UINT32_MAX,
	UINT64_C(1) << 32,
	UINT64_C(1) << 40,
	UINT64_C(1) << 62,
	INT64_MAX,
	UINT64_C(1) << 63,
	UINT64_MAX - 4095,
	UINT64_MAX,
};

/* Writes an integer in its shortest or longest form. Returns its bytes. */
static size_t put_number(uint8_t bytes[9], uint64_t value, bool negative)
{
	if (!negative && value < 0x80) {
		bytes[0] = (uint8_t)value;
		return 1;
	}
	bytes[0] = negative ? 0xd3 : 0xcf;
	for (int i = 0; i < 8; i++)
		bytes[1 + i] = (uint8_t)(value >> 8 * (7 - i));
	return 9;
}

static size_t put_text(uint8_t *bytes, enum item_type type, const char *text, size_t len)
{
	size_t header = item_header(bytes, type, (uint32_t)len);

	memcpy(bytes + header, text, len);
	return header + len;
}

/* Returns a random word of the protocol: a method, a field, a dtype, a mode, a kind, a completion, a
 * priority. */
static const char *word(uint64_t *random)
{
	switch (below(random, 7)) {
	case 0:
		return method_names[below(random, METHOD_COUNT)];
	case 1:
		return dtype_names[below(random, DTYPE_COUNT)];
	case 2:
		return pad_mode_names[below(random, PAD_MODE_COUNT)];
	case 3:
		return region_kind_names[below(random, REGION_KIND_COUNT)];
	case 4:
		return completion_names[below(random, COMPLETION_COUNT)];
	case 5:
		return job_priority_names[below(random, JOB_PRIORITY_COUNT)];
	default: {
		const struct message *params = methods[below(random, METHOD_COUNT)].params;

		return params->n_fields ? params->fields[below(random, params->n_fields)].name : "";
	}
	}
}

/* ---- Changes ------------------------------------------------------------------------------------------ */

static void replace(struct message_at *m, const struct item *item, const uint8_t *with, size_t n)
{
	item_splice(m->data, &m->len, m->max, item->start, item->end - item->start, with, n);
}

static void change_type(struct message_at *m)
{
	const struct text *with = &types[below(m->random, sizeof types / sizeof *types)];

	replace(m, pick(m, any), (const uint8_t *)with->data, with->len);
}

static void change_value(struct message_at *m)
{
	const struct item *item = pick(m, has_value);
	uint64_t value = numbers[below(m->random, sizeof numbers / sizeof *numbers)];
	bool negative = below(m->random, 3) == 0;
	uint8_t bytes[300];
	char text[256];

	if (!item)
		return;
	switch (item->type) {
	case ITEM_STR:
	case ITEM_BIN:
		if (below(m->random, 2)) {
			const char *other = word(m->random);

			replace(m, item, bytes, put_text(bytes, item->type, other, strlen(other)));
		} else {
			static const uint8_t sizes[] = { 0, 1, 31, 32, 63, 64, 65, 255 };
			size_t len = sizes[below(m->random, sizeof sizes)];

			memset(text, (int)below(m->random, 256), len);
			replace(m, item, bytes, put_text(bytes, item->type, text, len));
		}
		break;
	default:
		replace(m, item, bytes, put_number(bytes, negative ? -value : value, negative));
	}
}

/* Corrects the container's header after its number of items has changed. */
static void recount(struct message_at *m, const struct item *container, uint32_t n)
{
	uint8_t header[ITEM_HEADER];

	item_splice(m->data, &m->len, m->max, container->start, container->body - container->start, header,
	            item_header(header, container->type, n));
}

/* The bytes of one element, or of one pair, of a container. */
struct span {
	size_t start;
	size_t end;
};

static struct span entry(const struct message_at *m, const struct item *container, uint32_t place)
{
	uint32_t index = (uint32_t)(container - m->items), least = place, most = place;
	struct span span = { 0 };

	if (container->type == ITEM_MAP) {
		least = place & ~1u;
		most = least + 1;
	}
	for (size_t i = 0; i < m->n; i++) {
		if (m->items[i].parent == index && m->items[i].place == least)
			span.start = m->items[i].start;
		if (m->items[i].parent == index && m->items[i].place == most)
			span.end = m->items[i].end;
	}
	return span;
}

static uint32_t entry_size(const struct item *container)
{
	return container->type == ITEM_MAP ? 2 : 1;
}

static void duplicate(struct message_at *m)
{
	const struct item *container = pick(m, is_filled);
	struct span span;
	uint8_t copy[512];

	if (!container)
		return;
	span = entry(m, container, below(m->random, container->n));
	if (span.end - span.start > sizeof copy || m->len + (span.end - span.start) + ITEM_HEADER > m->max)
		return;
	memcpy(copy, m->data + span.start, span.end - span.start);
	item_splice(m->data, &m->len, m->max, span.end, 0, copy, span.end - span.start);
	recount(m, container, container->n + entry_size(container));
}

static void drop(struct message_at *m)
{
	const struct item *container = pick(m, is_filled);
	struct span span;

	if (!container)
		return;
	span = entry(m, container, below(m->random, container->n));
	item_splice(m->data, &m->len, m->max, span.start, span.end - span.start, NULL, 0);
	recount(m, container, container->n - entry_size(container));
}

static void rename_key(struct message_at *m)
{
	const struct item *key = pick(m, is_key);
	const char *other = below(m->random, 4) ? word(m->random) : "nobody";
	uint8_t bytes[64];

	if (key)
		replace(m, key, bytes, put_text(bytes, ITEM_STR, other, strlen(other)));
}

static void exchange(struct message_at *m)
{
	const struct item *container = pick(m, is_filled);
	struct span a, b, kept;
	uint8_t copy[4096];

	if (!container)
		return;
	a = entry(m, container, below(m->random, container->n));
	b = entry(m, container, below(m->random, container->n));
	if (a.start > b.start) {
		kept = a;
		a = b;
		b = kept;
	}
	if (a.start == b.start || b.end - a.start > sizeof copy)
		return;
	memcpy(copy, m->data + b.start, b.end - b.start);
	memcpy(copy + (b.end - b.start), m->data + a.end, b.start - a.end);
	memcpy(copy + (b.end - a.end), m->data + a.start, a.end - a.start);
	memcpy(m->data + a.start, copy, b.end - a.start);
}

static void change_header(struct message_at *m)
{
	const struct item *item = pick(m, is_counted);
	static const uint32_t much[] = { UINT32_MAX, INT32_MAX, 65536, 4097, 1u << 31 };
	uint8_t header[ITEM_HEADER];
	uint32_t n;
	size_t size;

	if (!item)
		return;
	n = item->n / entry_size(item);
	switch (below(m->random, 4)) {
	case 0:
		size = item_wide_header(header, item->type, n);
		break;
	case 1:
		size = item_header(header, item->type, item->n + entry_size(item));
		break;
	case 2:
		size = item_header(header, item->type, item->n ? item->n - entry_size(item) : 1);
		break;
	default:
		size =
		    item_wide_header(header, item->type, much[below(m->random, sizeof much / sizeof *much)]);
	}
	item_splice(m->data, &m->len, m->max, item->start, item->body - item->start, header, size);
}

static void nest(struct message_at *m)
{
	uint8_t arrays[32];
	size_t n = 1 + below(m->random, sizeof arrays);

	memset(arrays, 0x91, sizeof arrays);
	item_splice(m->data, &m->len, m->max, pick(m, any)->start, 0, arrays, n);
}

static void change_byte(uint8_t *data, size_t len, uint64_t *random)
{
	if (len)
		data[below(random, len)] = (uint8_t)oracle_random(random);
}

size_t spoil(uint8_t *data, size_t len, size_t max, enum spoil how, uint64_t *random)
{
	static void (*const changes[SPOIL_COUNT])(struct message_at *) = {
		[SPOIL_TYPE] = change_type,     [SPOIL_VALUE] = change_value,
		[SPOIL_DUPLICATE] = duplicate,  [SPOIL_DROP] = drop,
		[SPOIL_RENAME] = rename_key,    [SPOIL_ORDER] = exchange,
		[SPOIL_HEADER] = change_header, [SPOIL_NEST] = nest,
	};
	struct message_at m = { .data = data, .len = len, .max = max, .random = random };

	m.n = items_of(data, len, m.items, ITEM_MOST);
	if (how == SPOIL_CUT)
		return len ? below(random, len) : 0;
	if (m.n == 0 || !changes[how])
		change_byte(data, len, random);
	else
		changes[how](&m);
	return m.len;
}

size_t spoil_somehow(uint8_t *data, size_t len, size_t max, uint64_t *random)
{
	return spoil(data, len, max, (enum spoil)below(random, SPOIL_COUNT), random);
}
