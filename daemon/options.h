/* The command line of tmad. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>

#include "limits.h"
#include "log.h"
#include "proto/status.h"

enum option_id {
#define OPTION(id, name, argument, doc, place, applies) OPTION_##id,
#include "options.def"
	OPTION_COUNT
};

enum option_place {
	OPTION_PLACE_FILE, /* and on the command line */
	OPTION_PLACE_LINE, /* on the command line alone */
};

enum option_applies {
	OPTION_APPLIES_RELOAD,
	OPTION_APPLIES_RESTART,
};

struct option_info {
	const char *name;
	const char *argument; /* NULL: takes none */
	const char *doc;
	enum option_place place;
	enum option_applies applies;
};

extern const struct option_info option_infos[OPTION_COUNT];

enum engine_choice {
	ENGINE_CHOICE_AUTO,
	ENGINE_CHOICE_CPU,
	ENGINE_CHOICE_CUDA,
};

enum options_action {
	OPTIONS_RUN,
	OPTIONS_CHECK_CONFIG,
	OPTIONS_HELP,
	OPTIONS_VERSION,
};

struct options {
	enum options_action action;
	const char *socket; /* NULL: the default path */
	enum engine_choice engine;
	const char *device;   /* with ENGINE_CHOICE_CUDA alone; NULL: the first */
	uint32_t threads;     /* 0: one a CPU */
	const char *metrics;  /* where they are served; NULL: nowhere */
	const char *config;   /* NULL: the system's file, where it is there */
	const char *instance; /* NULL: none */
	enum log_level log_level;
	struct limits limits;
};

/* 0, or INVALID_ARGUMENT with the option, the rule and the value in err. Strings point into argv. */
int options_parse(struct options *ret, int argc, char **argv, struct error *err);

/* The help text, to stdout. */
void options_print_help(void);

#endif
