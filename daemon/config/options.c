/* SPDX-License-Identifier: Apache-2.0 */
/* Parses and prints settings. getopt_long parses the command line; config.c reads the files. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/program.h"
#include "endpoint.h"
#include "limits.h"
#include "overrides.h"

#define MAX_THREADS   1024 /* greatest value of --threads */
#define INSTANCE_MOST 64   /* maximum number of bytes of the name of an instance */
#define DEFAULT_MODE  0660 /* permissions of the socket */

/* The value that getopt_long returns for a setting. It may not be 0, which getopt_long itself uses. */
#define ID_OF(setting) ((setting) + 1)
#define SETTING_OF(id) ((id)-1)

const struct option_info option_infos[OPTION_COUNT] = {
#define OPTION(id, name, argument, doc, place, applies) \
	{ name, argument, doc, OPTION_PLACE_##place, OPTION_APPLIES_##applies },
#include "options.def"
};

static const char *const engines[] = { "auto", "cpu", "cuda" };
static const char *const switches[] = { "off", "on" };
static const char *const formats[] = { "auto", "plain", "time" }; /* indexed by enum log_format */
static const char *const levels[] = { "error", "warning", "notice", "info", "debug" };

/* ---- Devices ------------------------------------------------------------------------------------------ */

const char *device_option_next(const char **list, char name[DEVICE_NAME_BYTES])
{
	const size_t len = strcspn(*list, ",");

	if (len >= DEVICE_NAME_BYTES)
		return NULL;
	memcpy(name, *list, len);
	name[len] = '\0';
	*list = (*list)[len] ? *list + len + 1 : NULL;
	return name;
}

bool device_option_is_all(const char *devices)
{
	return !devices || !strcmp(devices, "all");
}

static int check_devices(const char *devices, struct error *err)
{
	char name[DEVICE_NAME_BYTES];
	int n = 0;

	for (const char *list = devices; list && !device_option_is_all(devices); n++)
		if (!device_option_next(&list, name) || !*name || !strcmp(name, "all") || n == ENGINES_MOST)
			return error_set(
			    err, STATUS_INVALID_ARGUMENT,
			    "it takes all, or at most %d ordinals and UUIDs of GPUs separated by "
			    "commas",
			    ENGINES_MOST);
	return 0;
}

/* ---- Names -------------------------------------------------------------------------------------------- */

void setting_name(int setting, char name[SETTING_NAME_BYTES])
{
	snprintf(name, SETTING_NAME_BYTES, "%s",
	         setting < OPTION_COUNT ? option_infos[setting].name
	                                : limit_infos[setting - OPTION_COUNT].name);
	for (char *c = name; *c; c++)
		if (*c == '_')
			*c = '-';
}

static char dash(char c)
{
	return c == '_' ? '-' : c;
}

int setting_find(const char *name)
{
	char known[SETTING_NAME_BYTES];

	for (int i = 0; i < SETTING_COUNT; i++) {
		size_t n = 0;

		setting_name(i, known);
		while (known[n] && known[n] == dash(name[n]))
			n++;
		if (!known[n] && !name[n])
			return i;
	}
	return -1;
}

bool setting_nearest(const char *name, enum option_place place, char nearest[SETTING_NAME_BYTES])
{
	unsigned least = NEAREST_LIMIT;

	for (int i = 0; i < SETTING_COUNT; i++) {
		char known[SETTING_NAME_BYTES];
		unsigned far;

		if (place == OPTION_PLACE_FILE && setting_stands_in(i) != OPTION_PLACE_FILE)
			continue;
		setting_name(i, known);
		far = nearest_distance(name, known);
		if (far < least) {
			least = far;
			memcpy(nearest, known, sizeof known);
		}
	}
	return least < NEAREST_LIMIT;
}

enum option_place setting_stands_in(int setting)
{
	return setting < OPTION_COUNT ? option_infos[setting].place : OPTION_PLACE_FILE;
}

enum option_applies setting_applies(int setting)
{
	if (setting < OPTION_COUNT)
		return option_infos[setting].applies;
	return limit_applies_at_once(setting - OPTION_COUNT) ? OPTION_APPLIES_RELOAD : OPTION_APPLIES_RESTART;
}

void setting_place(int setting, const struct setting_origin *from, char *text, size_t size)
{
	char name[SETTING_NAME_BYTES];

	setting_name(setting, name);
	if (from->file)
		snprintf(text, size, "%s:%u: %s = %s", from->file, from->line, name, from->text);
	else
		snprintf(text, size, "--%s=%s", name, from->text);
}

/* ---- Values ------------------------------------------------------------------------------------------- */

/* Returns the index of text among the n names, or INVALID_ARGUMENT. */
static int parse_choice(const char *text, const char *const *names, int n, struct error *err)
{
	char list[128] = "";

	for (int i = 0; i < n; i++) {
		if (!strcmp(text, names[i]))
			return i;
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
	}
	return error_set(err, STATUS_INVALID_ARGUMENT, "it takes one of %s", list);
}

static int parse_text(const char *text, const char **ret, struct error *err)
{
	if (!*text)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "it takes a value; leave it out for the default");
	*ret = text;
	return 0;
}

static int parse_socket(const char *text, const char **ret, struct error *err)
{
	if (!strcmp(text, "@"))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "the name of an abstract socket is missing after @");
	return parse_text(text, ret, err);
}

/* Restricts the characters of the name, because it becomes part of the name of a file. */
static int parse_instance(const char *text, const char **ret, struct error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:\\";
	size_t len = strlen(text);

	if (len == 0 || len > INSTANCE_MOST || *text == '.' || strspn(text, allowed) < len)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "it takes 1 to %d letters, digits and any of -_.:\\, and does not start with a dot",
		    INSTANCE_MOST);
	*ret = text;
	return 0;
}

/* Parses an octal mode. It must give the owner access to the socket. */
static int parse_mode(const char *text, uint32_t *ret, struct error *err)
{
	uint32_t mode = 0;
	const char *digit;

	for (digit = text; *digit >= '0' && *digit <= '7' && mode <= 0777; digit++)
		mode = mode * 8 + (uint32_t)(*digit - '0');
	if (*digit || mode > 0777 || (mode & 0600) != 0600)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "it takes an octal mode from 0600 to 0777 with which the owner may read and write");
	*ret = mode;
	return 0;
}

static int parse_option(struct options *o, enum option_id id, const char *text, struct error *err)
{
	struct endpoint endpoint;
	uint64_t number;
	int r;

	switch (id) {
	case OPTION_SOCKET:
		return parse_socket(text, &o->socket, err);
	case OPTION_SOCKET_GROUP:
		return group_parse(text, &o->socket_group, err);
	case OPTION_SOCKET_MODE:
		return parse_mode(text, &o->socket_mode, err);
	case OPTION_ENGINE:
		r = parse_choice(text, engines, 3, err);
		if (r >= 0)
			o->engine = (enum engine_choice)r;
		return r < 0 ? r : 0;
	case OPTION_DEVICE:
		r = parse_text(text, &o->device, err);
		return r < 0 ? r : check_devices(text, err);
	case OPTION_THREADS:
		r = quantity_parse(QUANTITY_COUNT, text, 0, MAX_THREADS, &number, err);
		if (r == 0)
			o->threads = (uint32_t)number;
		return r;
	case OPTION_TUNE:
		r = parse_choice(text, switches, 2, err);
		if (r >= 0)
			o->tune = r;
		return r < 0 ? r : 0;
	case OPTION_TRUST_OWN_UID:
		r = parse_choice(text, switches, 2, err);
		if (r >= 0)
			o->trust_own_uid = r;
		return r < 0 ? r : 0;
	case OPTION_METRICS:
		r = endpoint_parse(&endpoint, text, err);
		if (r == 0)
			o->metrics = text;
		return r;
	case OPTION_SUBUID_FILE:
		o->subuid_file = text;
		return 0;
	case OPTION_LOG_LEVEL:
		r = parse_choice(text, levels, 5, err);
		if (r >= 0)
			o->log_level = (enum log_level)(LOG_LEVEL_ERROR + r);
		return r < 0 ? r : 0;
	case OPTION_LOG_FORMAT:
		r = parse_choice(text, formats, 3, err);
		if (r >= 0)
			o->log_format = (enum log_format)r;
		return r < 0 ? r : 0;
	case OPTION_CONFIG:
		o->config = text;
		return 0;
	case OPTION_INSTANCE:
		return parse_instance(text, &o->instance, err);
	case OPTION_CHECK_CONFIG:
		o->action = OPTIONS_CHECK_CONFIG;
		return 0;
	case OPTION_HELP:
		o->action = OPTIONS_HELP;
		return 0;
	case OPTION_VERSION:
		o->action = OPTIONS_VERSION;
		return 0;
	case OPTION_COUNT:
		break;
	}
	return 0;
}

int setting_parse(struct options *options, int setting, const struct setting_origin *from, struct error *err)
{
	int limit = setting - OPTION_COUNT;
	int r = limit < 0 ? parse_option(options, (enum option_id)setting, from->text, err)
	                  : quantity_parse(quantity_of(limit_infos[limit].name), from->text,
	                                   limit_infos[limit].least, INT64_MAX,
	                                   limits_at(&options->limits, limit), err);

	if (r == 0)
		options->origin[setting] = *from;
	return r;
}

static const char *or_default(const char *text, const char *otherwise)
{
	return text ? text : otherwise;
}

void setting_value(const struct options *o, int setting, char *text, size_t size)
{
	switch (setting) {
	case OPTION_ENGINE:
		snprintf(text, size, "%s", engines[o->engine]);
		return;
	case OPTION_THREADS:
		snprintf(text, size, "%" PRIu32, o->threads);
		return;
	case OPTION_TUNE:
		snprintf(text, size, "%s", switches[o->tune]);
		return;
	case OPTION_TRUST_OWN_UID:
		snprintf(text, size, "%s", switches[o->trust_own_uid]);
		return;
	case OPTION_LOG_LEVEL:
		snprintf(text, size, "%s", levels[o->log_level - LOG_LEVEL_ERROR]);
		return;
	case OPTION_LOG_FORMAT:
		snprintf(text, size, "%s", formats[o->log_format]);
		return;
	default:
		if (setting < OPTION_COUNT)
			snprintf(text, size, "%s", or_default(o->origin[setting].text, "the default"));
		else
			snprintf(text, size, "%" PRIu64,
			         *limits_at((struct limits *)&o->limits, setting - OPTION_COUNT));
	}
}

/* ---- All of them -------------------------------------------------------------------------------------- */

void options_init(struct options *options)
{
	*options = (struct options){ .log_level = LOG_LEVEL_INFO,
		                     .tune = true,
		                     .trust_own_uid = true,
		                     .socket_group = UINT32_MAX,
		                     .socket_mode = DEFAULT_MODE };
	limits_init(&options->limits);
}

/* Fills the table for getopt_long with two entries for each setting: its name with dashes, and the same name
 * with underscores. */
static void fill_table(struct option *table, char (*names)[SETTING_NAME_BYTES])
{
	for (int i = 0; i < 2 * SETTING_COUNT; i++) {
		int setting = i / 2;
		bool alone = setting < OPTION_COUNT && !option_infos[setting].argument;

		setting_name(setting, names[i]);
		for (char *c = names[i]; i % 2 && *c; c++)
			if (*c == '-')
				*c = '_';
		table[i] = (struct option){ names[i], alone ? no_argument : required_argument, NULL,
			                    ID_OF(setting) };
	}
}

static int parse_given(struct options *o, int setting, const char *text, struct error *err)
{
	struct setting_origin from = { .text = text };
	char place[160];
	struct error rule;

	if (setting_parse(o, setting, &from, &rule) == 0)
		return 0;
	setting_place(setting, &from, place, sizeof place);
	return error_set(err, rule.status, "%s: %s", place, rule.message);
}

/* Sets err for an option that getopt_long has refused because its abbreviation is ambiguous, because it has
 * an argument but takes none, or because its name is unknown. id is optopt. Returns INVALID_ARGUMENT. */
static int refuse_option(const char *text, int id, struct error *err)
{
	char nearest[SETTING_NAME_BYTES], name[SETTING_NAME_BYTES];

	if (strncmp(text, "--", 2))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: options begin with two hyphens", text);
	if (id > 0 && id <= SETTING_COUNT) {
		setting_name(SETTING_OF(id), name);
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: --%s takes no argument", text, name);
	}
	snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 2, "="), text + 2);
	for (int i = 0; i < SETTING_COUNT; i++) {
		setting_name(i, nearest);
		if (!strncmp(nearest, name, strlen(name)))
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s: several options begin with that",
			                 text);
	}
	if (setting_nearest(name, OPTION_PLACE_LINE, nearest))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: unknown option; did you mean --%s?", text,
		                 nearest);
	return error_set(err, STATUS_INVALID_ARGUMENT, "%s: unknown option", text);
}

int options_parse(struct options *options, int argc, char **argv, struct error *err)
{
	struct option table[2 * SETTING_COUNT + 1] = { 0 };
	char names[2 * SETTING_COUNT][SETTING_NAME_BYTES];
	struct options o = *options;
	int id, r;

	fill_table(table, names);
	opterr = 0;
	optind = 0; /* makes glibc start from the beginning */
	while ((id = getopt_long(argc, argv, ":", table, NULL)) != -1) {
		if (id == ':')
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s: it needs an argument",
			                 argv[optind - 1]);
		if (id == '?')
			return refuse_option(argv[optind - 1], optopt, err);
		r = parse_given(&o, SETTING_OF(id), optarg, err);
		if (r < 0)
			return r;
	}
	if (optind < argc)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: tmad takes only options", argv[optind]);
	*options = o;
	return 0;
}

/* ---- Rules about several ------------------------------------------------------------------------------- */

void options_fit(struct options *options)
{
	bool given[LIMIT_COUNT];

	for (int i = 0; i < LIMIT_COUNT; i++)
		given[i] = options->origin[OPTION_COUNT + i].text != NULL;
	limits_fit(&options->limits, given);
}

static int check_device(const struct options *o, char *text, size_t size)
{
	const struct setting_origin *device = &o->origin[OPTION_DEVICE], *engine = &o->origin[OPTION_ENGINE];
	size_t len;

	if (!o->device || o->engine == ENGINE_CHOICE_CUDA)
		return 0;
	setting_place(OPTION_DEVICE, device, text, size);
	len = strlen(text);
	len += (size_t)snprintf(text + len, size - len, ": only the cuda engine takes a device, and ");
	if (len < size && engine->text)
		setting_place(OPTION_ENGINE, engine, text + len, size - len);
	else if (len < size)
		snprintf(text + len, size - len, "the engine is %s by default", engines[o->engine]);
	return STATUS_INVALID_ARGUMENT;
}

int options_check_bound(const struct options *o, const struct limit_bound *bound, uint64_t less,
                        uint64_t more, const struct setting_origin *from, char *text, size_t size)
{
	const struct setting_origin *other = &o->origin[OPTION_COUNT + bound->more];
	char name[SETTING_NAME_BYTES];
	size_t len;

	if (less <= more)
		return 0;
	setting_place(OPTION_COUNT + bound->less, from, text, size);
	len = strlen(text);
	setting_name(OPTION_COUNT + bound->more, name);
	len +=
	    (size_t)snprintf(text + len, size - len, ": it may not exceed %s, which is %" PRIu64, name, more);
	if (len < size && other->text && more == *limits_at((struct limits *)&o->limits, bound->more)) {
		len += (size_t)snprintf(text + len, size - len, " (");
		if (len < size)
			setting_place(OPTION_COUNT + bound->more, other, text + len, size - len);
		len = strlen(text);
		snprintf(text + len, size - len, ")");
	} else if (len < size && more == limit_infos[bound->more].dflt) {
		snprintf(text + len, size - len, " by default");
	}
	return STATUS_INVALID_ARGUMENT;
}

int options_check(const struct options *o, int rule, char *text, size_t size)
{
	const struct limit_bound *bound = &limit_bounds[rule > 0 ? rule - 1 : 0];
	struct limits *limits = (struct limits *)&o->limits;

	if (rule == 0)
		return check_device(o, text, size);
	return options_check_bound(o, bound, *limits_at(limits, bound->less), *limits_at(limits, bound->more),
	                           &o->origin[OPTION_COUNT + bound->less], text, size);
}

/* ---- Help --------------------------------------------------------------------------------------------- */

void options_print_help(void)
{
	char name[SETTING_NAME_BYTES], line[80];

	printf("usage: tmad [OPTION]...\n\n"
	       "Serves tensor copy, transpose and pad on a Unix socket, in the foreground.\n\n");
	for (int i = 0; i < OPTION_COUNT; i++) {
		const struct option_info *info = &option_infos[i];

		snprintf(line, sizeof line, "--%s%s%s", info->name, info->argument ? "=" : "",
		         info->argument ? info->argument : "");
		printf("  %-32s %s\n", line, info->doc);
	}
	printf("\nLimits\n\n");
	for (int i = 0; i < LIMIT_COUNT; i++) {
		setting_name(OPTION_COUNT + i, name);
		snprintf(line, sizeof line, "--%s=N", name);
		if (limit_infos[i].dflt)
			printf("  %-32s %s [%" PRIu64 "]\n", line, limit_infos[i].doc, limit_infos[i].dflt);
		else
			printf("  %-32s %s\n", line, limit_infos[i].doc);
	}
	printf(
	    "\nThe system's tmad.conf is " SYSCONFDIR "/tmad/tmad.conf; the command line overrides it.\n"
	    "It uses the socket of a service manager (LISTEN_FDS) if it is passed one, reloads its files on\n"
	    "SIGHUP, and shuts down cleanly on SIGTERM.\n"
	    "Exit status: 0 stopped as requested, 1 could not run, 2 bad usage or an error in a file.\n");
}
