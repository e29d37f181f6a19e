/* SPDX-License-Identifier: Apache-2.0 */
/* Tests numbers with units, and text that is no such number. */
#include "daemon/config/limits.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

struct row {
	enum quantity quantity;
	char text[32];
	uint64_t value; /* 0: the text is refused */
};

#define K (UINT64_C(1) << 10)

ParameterizedTestParameters(quantity, reads)
{
	static struct row rows[] = {
		{ QUANTITY_COUNT, "17", 17 },
		{ QUANTITY_COUNT, "9223372036854775807", INT64_MAX },
		{ QUANTITY_COUNT, "9223372036854775808", 0 },
		{ QUANTITY_COUNT, "99999999999999999999999", 0 },
		{ QUANTITY_COUNT, "4K", 0 },
		{ QUANTITY_COUNT, "1.0", 0 },
		{ QUANTITY_COUNT, "", 0 },
		{ QUANTITY_COUNT, "-1", 0 },
		{ QUANTITY_COUNT, "+1", 0 },
		{ QUANTITY_COUNT, " 1", 0 },
		{ QUANTITY_COUNT, "0x10", 0 },
		{ QUANTITY_BYTES, "65536", 65536 },
		{ QUANTITY_BYTES, "7B", 7 },
		{ QUANTITY_BYTES, "1K", K },
		{ QUANTITY_BYTES, "64m", 64 * K * K },
		{ QUANTITY_BYTES, "4G", 4 * K * K * K },
		{ QUANTITY_BYTES, "4gb", 4 * K * K * K },
		{ QUANTITY_BYTES, "2TiB", 2 * K * K * K * K },
		{ QUANTITY_BYTES, "1.5G", 3 * K * K * K / 2 },
		{ QUANTITY_BYTES, "0.1K", 102 },
		{ QUANTITY_BYTES, "8388607T", UINT64_C(8388607) << 40 },
		{ QUANTITY_BYTES, "8388608T", 0 },
		{ QUANTITY_BYTES, "99999999T", 0 },
		{ QUANTITY_BYTES, "1.5", 0 },
		{ QUANTITY_BYTES, "1.G", 0 },
		{ QUANTITY_BYTES, ".5G", 0 },
		{ QUANTITY_BYTES, "1.5.5G", 0 },
		{ QUANTITY_BYTES, "1P", 0 },
		{ QUANTITY_BYTES, "1GG", 0 },
		{ QUANTITY_BYTES, "1Gi", 0 },
		{ QUANTITY_BYTES, "G", 0 },
		{ QUANTITY_BYTES, "4 G", 0 },
		{ QUANTITY_BYTES, "30s", 0 },
		{ QUANTITY_MS, "30", 30 },
		{ QUANTITY_MS, "500ms", 500 },
		{ QUANTITY_MS, "30s", 30000 },
		{ QUANTITY_MS, "1.5s", 1500 },
		{ QUANTITY_MS, "5min", 300000 },
		{ QUANTITY_MS, "1h", 3600000 },
		{ QUANTITY_MS, "2000us", 2 },
		{ QUANTITY_MS, "1500us", 0 },
		{ QUANTITY_MS, "0.0001s", 0 },
		{ QUANTITY_MS, "1m", 0 },
		{ QUANTITY_MS, "1d", 0 },
		{ QUANTITY_MS, "4G", 0 },
		{ QUANTITY_US, "200", 200 },
		{ QUANTITY_US, "200us", 200 },
		{ QUANTITY_US, "1ms", 1000 },
		{ QUANTITY_US, "0.5ms", 500 },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct row *row, quantity, reads)
{
	uint64_t value = 12345;
	struct error err;
	int r = quantity_parse(row->quantity, row->text, 1, INT64_MAX, &value, &err);

	cr_assert_eq(r, row->value ? 0 : STATUS_INVALID_ARGUMENT, "%s", row->text);
	cr_assert_eq(value, row->value ? row->value : 12345, "%s: %llu", row->text,
	             (unsigned long long)value);
}

Test(quantity, is_of_a_name)
{
	cr_assert_eq(quantity_of("connections"), QUANTITY_COUNT);
	cr_assert_eq(quantity_of("mapped_bytes_per_uid"), QUANTITY_BYTES);
	cr_assert_eq(quantity_of("reply_pause_bytes"), QUANTITY_BYTES);
	cr_assert_eq(quantity_of("idle_deadline_ms"), QUANTITY_MS);
	cr_assert_eq(quantity_of("ring_spin_us"), QUANTITY_US);
}
