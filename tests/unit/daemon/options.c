/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the command line: every option reaches its field, and every mistake is reported by its name. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "daemon/config/options.h"

struct bad_row {
	char argument[64];
	char message[64]; /* part of the message */
};

ParameterizedTestParameters(options, refuses)
{
	static struct bad_row rows[] = {
		{ "--engine=gpu", "--engine=gpu: it takes one of auto, cpu, cuda" },
		{ "--threads=two", "--threads=two" },
		{ "--threads=-1", "--threads=-1" },
		{ "--threads=9999999", "from 0 to" },
		{ "--jobs-per-uid=0", "--jobs-per-uid=0: it takes a whole number from 1" },
		{ "--regions-per-uid=18446744073709551616", "--regions-per-uid=18446744073709551616" },
		{ "--regions-per-uid=", "--regions-per-uid=" },
		{ "--log-level=loud", "--log-level=loud" },
		{ "--no-such-thing", "--no-such-thing" },
		{ "--socket", "--socket: it needs an argument" },
		{ "stray", "stray: tmad takes only options" },
		{ "--socket=", "--socket=: it takes a value" },
		{ "--instance=a/b", "--instance=a/b: it takes 1 to 64 letters" },
		{ "--instance=.", "--instance=.: it takes" },
		{ "--instance=", "--instance=: it takes" },
		{ "--log-format=xml", "--log-format=xml: it takes one of auto, plain, time" },
		{ "--socket=@", "--socket=@: the name of an abstract socket is missing after @" },
		{ "--log_level=loud", "--log-level=loud" },
	};

	return cr_make_param_array(struct bad_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct bad_row *row, options, refuses)
{
	char *argv[] = { (char[]){ "tmad" }, row->argument, NULL };
	struct options options = { .threads = 77 };
	struct error err;

	cr_assert_eq(options_parse(&options, 2, argv, &err), STATUS_INVALID_ARGUMENT, "%s", row->argument);
	cr_assert(strstr(err.message, row->message), "%s: %s", row->argument, err.message);
	cr_assert_eq(options.threads, 77, "%s: *ret has been touched", row->argument);
}

Test(options, defaults)
{
	char *argv[] = { (char[]){ "tmad" }, NULL };
	struct options options;
	struct error err;

	options_init(&options);
	cr_assert_eq(options_parse(&options, 1, argv, &err), 0);
	cr_assert_eq(options.action, OPTIONS_RUN);
	cr_assert_eq(options.engine, ENGINE_CHOICE_AUTO);
	cr_assert_eq(options.log_level, LOG_LEVEL_INFO);
	cr_assert(options.tune);
	cr_assert(options.trust_own_uid);
	cr_assert_null(options.socket);
	cr_assert_eq(options.limits.frame_deadline_ms, 5000);
	cr_assert_gt(options.limits.mapped_bytes_per_uid, 0);
}

Test(options, all_given)
{
	char *argv[] = { (char[]){ "tmad" },
		         (char[]){ "--socket" },
		         (char[]){ "/a/b" },
		         (char[]){ "--engine=cuda" },
		         (char[]){ "--device=1" },
		         (char[]){ "--threads=3" },
		         (char[]){ "--tune=off" },
		         (char[]){ "--trust-own-uid=off" },
		         (char[]){ "--log-level=debug" },
		         (char[]){ "--connections-per-uid=5" },
		         (char[]){ "--plan_cache_entries=0" },
		         (char[]){ "--tensor-map-entries=0" },
		         NULL };
	struct options options;
	struct error err;

	options_init(&options);
	cr_assert_eq(options_parse(&options, 12, argv, &err), 0, "%s", err.message);
	cr_assert_str_eq(options.socket, "/a/b");
	cr_assert_eq(options.engine, ENGINE_CHOICE_CUDA);
	cr_assert_str_eq(options.device, "1");
	cr_assert_eq(options.threads, 3);
	cr_assert(!options.tune);
	cr_assert(!options.trust_own_uid);
	cr_assert_eq(options.log_level, LOG_LEVEL_DEBUG);
	cr_assert_eq(options.limits.connections_per_uid, 5);
	cr_assert_eq(options.limits.plan_cache_entries, 0);
	cr_assert_eq(options.limits.tensor_map_entries, 0);
}

Test(options, every_limit_is_an_option_and_is_listed)
{
	struct limits limits;
	struct counter list[LIMIT_COUNT + 8];
	uint32_t n;

	limits_init(&limits);
	n = limits_list(&limits, list, LIMIT_COUNT + 8);
	cr_assert_gt(n, LIMIT_COUNT);
	for (int i = 0; i < LIMIT_COUNT; i++) {
		char argument[96] = "--";
		char *argv[] = { (char[]){ "tmad" }, argument, NULL };
		struct options options;
		struct error err;

		options_init(&options);
		strcat(strcat(argument, limit_infos[i].name), "=65536");
		for (char *c = argument; *c; c++)
			if (*c == '_')
				*c = '-';
		cr_assert_eq(options_parse(&options, 2, argv, &err), 0, "%s: %s", argument, err.message);
		cr_assert_eq(*limits_at(&options.limits, i), 65536, "%s", argument);
		cr_assert_str_eq(list[i].name, limit_infos[i].name);
	}
}
