/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the reading of a configuration file. Whatever it contains, each line causes at most one error, which
 * is text and names the line. A file without errors gives every setting a value that its rule allows, and
 * what is kept of it across a restart reads back the same. */
#include "daemon/config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tests/support/oracle.h"

#define FILE_NAME "f"
#define MOST_LINE 256

static char *arguments[] = { (char[]){ "tmad" }, NULL };

static void check_errors(const struct config *config, unsigned lines)
{
	unsigned last = 0;

	for (unsigned i = 0; i < config->n_errors && i < CONFIG_ERRORS; i++) {
		unsigned line = 0;
		int n = 0;

		fuzz_check(sscanf(config->error[i], FILE_NAME ":%u: %n", &line, &n) == 1 && n > 0, "%s",
		           config->error[i]);
		fuzz_check(line > last && line <= lines, "line %u after %u of %u", line, last, lines);
		fuzz_check(config->error[i][n], "nothing is said");
		for (const char *c = config->error[i]; *c; c++)
			fuzz_check(*c == '\t' || ((unsigned char)*c >= 0x20 && *c != 0x7f), "byte 0x%02x",
			           (unsigned char)*c);
		last = line;
	}
}

static void check_values(const struct config *config)
{
	const struct options *o = &config->options;

	fuzz_check(o->threads <= 1024 && o->engine <= ENGINE_CHOICE_CUDA);
	fuzz_check(o->log_level >= LOG_LEVEL_ERROR && o->log_level <= LOG_LEVEL_DEBUG);
	fuzz_check(!o->socket || *o->socket);
	fuzz_check(o->action == OPTIONS_RUN && !o->config && !o->instance);
	for (int i = 0; i < LIMIT_COUNT; i++) {
		uint64_t value = *limits_at((struct limits *)&o->limits, i);

		fuzz_check(value >= limit_infos[i].least && value <= INT64_MAX, "%s", limit_infos[i].name);
	}
}

/* Rules about several settings are checked after the file, so only a violation of them may be refused
 * there. */
static void check_rules(const struct config *config)
{
	for (unsigned i = 0; i < config->n_errors && i < CONFIG_ERRORS; i++)
		fuzz_check(strstr(config->error[i], "only the cuda engine takes a device") ||
		               strstr(config->error[i], "it may not exceed"),
		           "%s", config->error[i]);
}

static void check_kept(const struct config *config)
{
	char *kept = config_kept(config), *twice;
	struct config *again = kept ? config_read_kept(1, arguments, kept) : NULL;

	if (!again)
		abort();
	check_rules(again);
	twice = config_kept(again);
	if (!twice)
		abort();
	fuzz_check(!strcmp(kept, twice), "%s and then %s", kept, twice);
	check_values(again);
	free(twice);
	free(kept);
	config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config *config = calloc(1, sizeof *config);
	unsigned lines = 1;

	if (!config || !(config->file[0].path = strdup(FILE_NAME)))
		abort();
	for (size_t i = 0; i < size; i++)
		lines += data[i] == '\n';
	config_parse(config, &config->file[0], (const char *)data, size);
	check_errors(config, lines);
	if (config->n_errors == 0)
		check_kept(config);
	config_free(config);
	return 0;
}

/* ---- The mutator -------------------------------------------------------------------------------------- */

static const char *one_of(const char *const *texts, size_t n, uint64_t *random)
{
	return texts[oracle_random(random) % n];
}

#define ONE_OF(random, ...)                          \
	one_of((const char *const[]){ __VA_ARGS__ }, \
	       sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), random)

static size_t make_line(char *line, uint64_t *random)
{
	char name[SETTING_NAME_BYTES];

	setting_name((int)(oracle_random(random) % SETTING_COUNT), name);
	for (char *c = name; *c; c++)
		if (*c == '-' && oracle_random(random) % 2)
			*c = '_';
	if (oracle_random(random) % 8 == 0)
		name[oracle_random(random) % strlen(name)] = 'x';
	switch (oracle_random(random) % 8) {
	case 0:
		return (size_t)sprintf(line, "%s%s",
		                       ONE_OF(random, "[tmad]", "[limits]", "[Limits]", "[tmad", "[]",
		                              "[tmad]]", "[limits \"uid:7\"]",
		                              "[limits\"cgroup:/a.slice/b\"]", "[limits \"cgroup:/\"]",
		                              "[limits \"cgroup:/a/../b\"]"),
		                       ONE_OF(random, "\n", "\r\n", " # x\n", " ;\n", "x\n"));
	case 1:
		return (size_t)sprintf(line, "%s%0*d\n", ONE_OF(random, "#", ";", " # ", "threads = "),
		                       (int)(oracle_random(random) % 220), 1);
	default:
		return (size_t)sprintf(line, "%s%s%s%s%s", ONE_OF(random, "", "", " ", "\t"), name,
		                       ONE_OF(random, "=", " = ", ":", " :", " ", "=="),
		                       ONE_OF(random, "1", "0", "4096", "cpu", "cuda", "info", "/run/s", "",
		                              "-1", "18446744073709551616", "a ;b", ";a", "= b"),
		                       ONE_OF(random, "\n", "\r\n", " \n", "\n\n", " ; x\n", ""));
	}
}

/* Inserts a line before another one. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	uint64_t random = seed;
	uint64_t times = size ? 1 : 1 + oracle_random(&random) % 12;
	char line[MOST_LINE * 2];

	if (size && oracle_random(&random) % 3 == 0)
		return LLVMFuzzerMutate(data, size, max_size);
	if (!size && max_size >= 16)
		size = (size_t)sprintf((char *)data, "%s",
		                       ONE_OF(&random, "[tmad]\n", "[limits]\n", "\xef\xbb\xbf"));
	for (; times; times--) {
		size_t len = make_line(line, &random), at = size ? oracle_random(&random) % size : 0;

		while (at > 0 && data[at - 1] != '\n')
			at--;
		if (oracle_random(&random) % 2)
			at = size;
		if (len > max_size - size)
			break;
		memmove(data + at + len, data + at, size - at);
		memcpy(data + at, line, len);
		size += len;
	}
	return size;
}
