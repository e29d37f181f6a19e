/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of settings, reads them, and merges them with the command line. */
#include "config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SYSTEM_FILE SYSCONFDIR "/tmad/tmad.conf"
#define KEPT_NAME   "the previous settings"

/* ---- Errors ------------------------------------------------------------------------------------------- */

void config_error(struct config *config, const char *format, ...)
{
	va_list args;

	if (config->n_errors < CONFIG_ERRORS) {
		va_start(args, format);
		vsnprintf(config->error[config->n_errors], CONFIG_ERROR_BYTES, format, args);
		va_end(args);
	}
	config->n_errors++;
}

void config_no_memory(struct config *config)
{
	config->no_memory = true;
	config_error(config, "no memory to read the settings");
}

void config_say_errors(const struct config *config, void (*say)(const char *line))
{
	char more[64];

	for (unsigned i = 0; i < config->n_errors && i < CONFIG_ERRORS; i++)
		say(config->error[i]);
	if (config->n_errors > CONFIG_ERRORS) {
		snprintf(more, sizeof more, "and %u more", config->n_errors - CONFIG_ERRORS);
		say(more);
	}
}

void config_say_warnings(const struct config *config, void (*say)(const char *line))
{
	if (*config->subuids.warning)
		say(config->subuids.warning);
}

/* ---- Reading ------------------------------------------------------------------------------------------ */

/* The path of tmad@NAME.conf, beside tmad.conf. */
static char *instance_path(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	int directory = slash ? (int)(slash - path) + 1 : 0;
	char *ret;

	return asprintf(&ret, "%.*stmad@%s.conf", directory, path, name) < 0 ? NULL : ret;
}

/* "" asks for no file. */
static bool find_files(struct config *config)
{
	const char *given = config->options.config, *instance = config->options.instance;
	const char *path = given ? given : SYSTEM_FILE;

	if (!*path)
		return true;
	config->file[0].path = strdup(path);
	if (instance)
		config->file[1].path = instance_path(path, instance);
	return config->file[0].path && (!instance || config->file[1].path);
}

/* The limits of a section must fit those that bound them, in the section or for everybody. */
static void check_override(struct config *config, const struct override *o)
{
	const struct options *options = &config->options;
	char text[CONFIG_ERROR_BYTES];

	for (int i = 0; i < LIMIT_BOUNDS; i++) {
		const struct limit_bound *bound = &limit_bounds[i];
		uint64_t less = o->value[bound->less], more = o->value[bound->more];
		struct setting_origin from = { .file = o->file[bound->less], .line = o->line[bound->less] };
		char value[24];

		snprintf(value, sizeof value, "%" PRIu64, less);
		from.text = value;
		if (!more)
			more = *limits_at((struct limits *)&options->limits, bound->more);
		if (less && options_check_bound(options, bound, less, more, &from, text, sizeof text) < 0)
			config_error(config, "%s", text);
	}
}

/* Parses the command line again: it overrides the files. */
static void merge(struct config *config, int argc, char **argv)
{
	struct options *options = &config->options;
	char text[CONFIG_ERROR_BYTES];
	struct error err;

	options_init(options);
	options->overrides = &config->overrides;
	for (int f = 0; f < CONFIG_FILES; f++)
		for (int i = 0; i < SETTING_COUNT; i++) {
			struct config_file *file = &config->file[f];
			struct setting_origin from = { file->text[i], file->path, file->line[i] };

			if (from.text && setting_parse(options, i, &from, &err) < 0)
				config_error(config, "%s:%u: %s", from.file, from.line, err.message);
		}
	if (options_parse(options, argc, argv, &err) < 0) {
		config_error(config, "%s", err.message);
		return;
	}
	options_fit(options);
	for (int i = 0; i < OPTIONS_RULES; i++)
		if (options_check(options, i, text, sizeof text) < 0)
			config_error(config, "%s", text);
	for (uint32_t i = 0; i < config->overrides.n; i++)
		check_override(config, &config->overrides.of[i]);
	if (config->n_errors > 0)
		return;
	subuids_read(&config->subuids, options->subuid_file);
	options->subuids = &config->subuids;
}

/* Including what the command line says. */
static struct config *config_new(int argc, char **argv)
{
	struct config *config = calloc(1, sizeof *config);
	struct error err;

	if (!config)
		return NULL;
	options_init(&config->options);
	if (options_parse(&config->options, argc, argv, &err) < 0)
		config_error(config, "%s", err.message);
	return config;
}

struct config *config_read(int argc, char **argv)
{
	struct config *config = config_new(argc, argv);

	if (!config || config->n_errors > 0)
		return config;
	if (!find_files(config)) {
		config_no_memory(config);
		return config;
	}
	for (int i = 0; i < CONFIG_FILES; i++)
		if (config->file[i].path)
			config_parse_file(config, &config->file[i], i == 0 && config->options.config);
	if (config->n_errors == 0)
		merge(config, argc, argv);
	return config;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (int f = 0; f < CONFIG_FILES; f++) {
		for (int i = 0; i < SETTING_COUNT; i++)
			free(config->file[f].text[i]);
		free(config->file[f].path);
	}
	subuids_deinit(&config->subuids);
	free(config);
}

/* ---- What is kept ------------------------------------------------------------------------------------- */

/* No line gets longer than it was in its file. */
static void write_kept(FILE *out, const struct config *config, int first, int n)
{
	for (int i = first; i < first + n; i++) {
		const struct config_file *file = &config->file[config->file[1].text[i] ? 1 : 0];
		char name[SETTING_NAME_BYTES];

		setting_name(i, name);
		if (file->text[i] && i == OPTION_SOCKET_GROUP) /* by number: names are not looked up again */
			fprintf(out, "%s=%" PRIu32 "\n", name, config->options.socket_group);
		else if (file->text[i])
			fprintf(out, "%s=%s\n", name, file->text[i]);
	}
}

/* By number: names are not looked up again. */
static void write_override(FILE *out, const struct override *o)
{
	if (o->kind == OVERRIDE_CGROUP)
		fprintf(out, "[limits \"cgroup:%s\"]\n", o->cgroup);
	else
		fprintf(out, "[limits \"%s:%" PRIu32 "\"]\n", o->kind == OVERRIDE_GID ? "gid" : "uid", o->id);
	for (int i = 0; i < LIMIT_COUNT; i++)
		if (o->value[i])
			fprintf(out, "%s=%" PRIu64 "\n", limit_infos[i].name, o->value[i]);
}

char *config_kept(const struct config *config)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("[tmad]\n", out);
	write_kept(out, config, 0, OPTION_COUNT);
	fputs("[limits]\n", out);
	write_kept(out, config, OPTION_COUNT, LIMIT_COUNT);
	for (uint32_t i = 0; i < config->overrides.n; i++)
		write_override(out, &config->overrides.of[i]);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

struct config *config_read_kept(int argc, char **argv, const char *text)
{
	struct config *config = config_new(argc, argv);

	if (!config || config->n_errors > 0)
		return config;
	config->file[0].path = strdup(KEPT_NAME);
	if (!config->file[0].path) {
		config_no_memory(config);
		return config;
	}
	config_parse(config, &config->file[0], text, strlen(text));
	if (config->n_errors == 0)
		merge(config, argc, argv);
	return config;
}

/* ---- --check-config ----------------------------------------------------------------------------------- */

static void say_to_stderr(const char *line)
{
	fprintf(stderr, "tmad: %s\n", line);
}

bool config_check(int argc, char **argv)
{
	struct config *config = config_read(argc, argv);
	bool ok = config && config->n_errors == 0;

	if (!config)
		say_to_stderr("no memory to read the settings");
	else
		config_say_errors(config, say_to_stderr);
	if (ok)
		config_say_warnings(config, say_to_stderr);
	for (int i = 0; ok && i < CONFIG_FILES; i++)
		if (config->file[i].path)
			printf("%s: %s\n", config->file[i].path,
			       config->file[i].is_read ? "read" : "not found");
	if (ok)
		puts("ok");
	config_free(config);
	return ok;
}
