/* One table of options; the limits' rows come from limits.def. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_id {
	OPTION_SOCKET = 1,
	OPTION_ENGINE,
	OPTION_DEVICE,
	OPTION_THREADS,
	OPTION_LOG_LEVEL,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_LIMIT, /* + index */
};

#define MAX_THREADS 1024

static const struct {
	enum option_id id;
	const char *name;
	const char *argument; /* NULL: takes none */
	const char *doc;
} infos[] = {
	{ OPTION_SOCKET, "socket", "PATH", "listen there [$TMAD_SOCKET, /run/tmad/tmad.sock, ...]" },
	{ OPTION_ENGINE, "engine", "auto|cpu|cuda",
	  "what moves the bytes [auto: cuda where it opens, else cpu]" },
	{ OPTION_DEVICE, "device", "N|UUID", "the GPU, for --engine=cuda [the first]" },
	{ OPTION_THREADS, "threads", "N", "threads of the cpu engine [one a CPU]" },
	{ OPTION_LOG_LEVEL, "log-level", "LEVEL", "error, warning, notice, info or debug [info]" },
	{ OPTION_HELP, "help", NULL, "print this" },
	{ OPTION_VERSION, "version", NULL, "print the version" },
};

#define N_INFOS (sizeof infos / sizeof infos[0])

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

static int apply(struct options *o, int id, const char *value, struct error *err)
{
	static const char *const engines[] = { "auto", "cpu", "cuda" };
	static const char *const levels[] = { "error", "warning", "notice", "info", "debug" };
	uint64_t number;
	int r;

	switch (id) {
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
	case OPTION_LOG_LEVEL:
		r = parse_choice(value, levels, 5, "log-level", err);
		if (r >= 0)
			o->log_level = (enum log_level)(LOG_LEVEL_ERROR + r);
		return r < 0 ? r : 0;
	case OPTION_HELP:
		o->action = OPTIONS_HELP;
		return 0;
	case OPTION_VERSION:
		o->action = OPTIONS_VERSION;
		return 0;
	default: {
		char name[64];

		limit_option_name(id - OPTION_LIMIT, name, sizeof name);
		return parse_number(value, limit_infos[id - OPTION_LIMIT].least, INT64_MAX, name,
		                    limits_at(&o->limits, id - OPTION_LIMIT), err);
	}
	}
}

int options_parse(struct options *ret, int argc, char **argv, struct error *err)
{
	struct option table[N_INFOS + LIMIT_COUNT + 1] = { 0 };
	char limit_names[LIMIT_COUNT][64];
	struct options o = { .log_level = LOG_LEVEL_INFO };
	int id, r;

	for (size_t i = 0; i < N_INFOS; i++)
		table[i] =
		    (struct option){ infos[i].name, infos[i].argument ? required_argument : no_argument, NULL,
			             (int)infos[i].id };
	for (int i = 0; i < LIMIT_COUNT; i++) {
		limit_option_name(i, limit_names[i], sizeof limit_names[i]);
		table[N_INFOS + (size_t)i] =
		    (struct option){ limit_names[i], required_argument, NULL, OPTION_LIMIT + i };
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
		r = apply(&o, id, optarg, err);
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
	for (size_t i = 0; i < N_INFOS; i++) {
		snprintf(line, sizeof line, "--%s%s%s", infos[i].name, infos[i].argument ? "=" : "",
		         infos[i].argument ? infos[i].argument : "");
		printf("  %-32s %s\n", line, infos[i].doc);
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
