/* The options of options.def, and the limits of limits.def as options. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

/* What getopt_long gives for an option; a limit's is OPTION_COUNT + its index. Zero is getopt's own. */
#define ID_OF(setting) ((setting) + 1)
#define SETTING_OF(id) ((id)-1)

const struct option_info option_infos[OPTION_COUNT] = {
#define OPTION(id, name, argument, doc, place, applies) \
	{ name, argument, doc, OPTION_PLACE_##place, OPTION_APPLIES_##applies },
#include "options.def"
};

/* "regions_per_uid" is --regions-per-uid. */
static void limit_option_name(int index, char *name, size_t size)
{
	snprintf(name, size, "%s", limit_infos[index].name);
	for (char *c = name; *c; c++)
		if (*c == '_')
			*c = '-';
}

static int parse_number(const char *text, uint64_t min, uint64_t max, const char *option, uint64_t *ret,
                        struct error *err)
{
	char *end;
	unsigned long long value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < min || value > max)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--%s=%s: it takes a whole number from %" PRIu64 " to %" PRIu64, option,
		                 text, min, max);
	*ret = value;
	return 0;
}

/* The index of text in names, or INVALID_ARGUMENT. */
static int parse_choice(const char *text, const char *const *names, int n, const char *option,
                        struct error *err)
{
	char list[128] = "";

	for (int i = 0; i < n; i++) {
		if (!strcmp(text, names[i]))
			return i;
		snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", names[i]);
	}
	return error_set(err, STATUS_INVALID_ARGUMENT, "--%s=%s: it takes one of %s", option, text, list);
}

static int apply(struct options *o, int setting, const char *value, struct error *err)
{
	static const char *const engines[] = { "auto", "cpu", "cuda" };
	static const char *const levels[] = { "error", "warning", "notice", "info", "debug" };
	uint64_t number;
	int r;

	if (setting >= OPTION_COUNT) {
		int limit = setting - OPTION_COUNT;
		char name[64];

		limit_option_name(limit, name, sizeof name);
		return parse_number(value, limit_infos[limit].least, INT64_MAX, name,
		                    limits_at(&o->limits, limit), err);
	}
	switch ((enum option_id)setting) {
	case OPTION_SOCKET:
		o->socket = value;
		return 0;
	case OPTION_ENGINE:
		r = parse_choice(value, engines, 3, "engine", err);
		if (r >= 0)
			o->engine = (enum engine_choice)r;
		return r < 0 ? r : 0;
	case OPTION_DEVICE:
		o->device = value;
		return 0;
	case OPTION_THREADS:
		r = parse_number(value, 0, MAX_THREADS, "threads", &number, err);
		if (r == 0)
			o->threads = (uint32_t)number;
		return r;
	case OPTION_METRICS:
		o->metrics = value;
		return 0;
	case OPTION_LOG_LEVEL:
		r = parse_choice(value, levels, 5, "log-level", err);
		if (r >= 0)
			o->log_level = (enum log_level)(LOG_LEVEL_ERROR + r);
		return r < 0 ? r : 0;
	case OPTION_CONFIG:
		o->config = value;
		return 0;
	case OPTION_INSTANCE:
		o->instance = value;
		return 0;
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

int options_parse(struct options *ret, int argc, char **argv, struct error *err)
{
	struct option table[OPTION_COUNT + LIMIT_COUNT + 1] = { 0 };
	char limit_names[LIMIT_COUNT][64];
	struct options o = { .log_level = LOG_LEVEL_INFO };
	int id, r;

	for (int i = 0; i < OPTION_COUNT; i++)
		table[i] = (struct option){ option_infos[i].name,
			                    option_infos[i].argument ? required_argument : no_argument, NULL,
			                    ID_OF(i) };
	for (int i = 0; i < LIMIT_COUNT; i++) {
		limit_option_name(i, limit_names[i], sizeof limit_names[i]);
		table[OPTION_COUNT + i] =
		    (struct option){ limit_names[i], required_argument, NULL, ID_OF(OPTION_COUNT + i) };
	}

	limits_init(&o.limits);
	opterr = 0;
	optind = 1;
	while ((id = getopt_long(argc, argv, ":", table, NULL)) != -1) {
		if (id == ':')
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s: it takes an argument",
			                 argv[optind - 1]);
		if (id == '?')
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s: no such option, or one that takes no argument",
			                 argv[optind - 1]);
		r = apply(&o, SETTING_OF(id), optarg, err);
		if (r < 0)
			return r;
	}
	if (optind < argc)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: tmad takes options only", argv[optind]);
	if (o.device && o.engine != ENGINE_CHOICE_CUDA)
		return error_set(err, STATUS_INVALID_ARGUMENT, "--device=%s: it is of --engine=cuda alone",
		                 o.device);
	*ret = o;
	return 0;
}

void options_print_help(void)
{
	char name[64], line[80];

	printf(
	    "tmad [OPTION]... serves tensor copy, transpose and pad on a Unix socket, in the foreground.\n\n");
	for (int i = 0; i < OPTION_COUNT; i++) {
		const struct option_info *info = &option_infos[i];

		snprintf(line, sizeof line, "--%s%s%s", info->name, info->argument ? "=" : "",
		         info->argument ? info->argument : "");
		printf("  %-32s %s\n", line, info->doc);
	}
	printf("\nLimits\n\n");
	for (int i = 0; i < LIMIT_COUNT; i++) {
		limit_option_name(i, name, sizeof name);
		snprintf(line, sizeof line, "--%s=N", name);
		if (limit_infos[i].dflt)
			printf("  %-32s %s [%" PRIu64 "]\n", line, limit_infos[i].doc, limit_infos[i].dflt);
		else
			printf("  %-32s %s\n", line, limit_infos[i].doc);
	}
	printf(
	    "\nIt takes the socket of a service manager (LISTEN_FDS) when given one, and stops in order on SIGTERM.\n"
	    "Exit: 0 stopped as asked, 1 could not run, 2 bad usage.\n");
}
