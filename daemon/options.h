/* The command line of tmad. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>

#include "limits.h"
#include "log.h"
#include "proto/status.h"

enum engine_choice {
	ENGINE_CHOICE_AUTO,
	ENGINE_CHOICE_CPU,
	ENGINE_CHOICE_CUDA,
};

enum options_action {
	OPTIONS_RUN,
	OPTIONS_HELP,
	OPTIONS_VERSION,
};

struct options {
	enum options_action action;
	const char *socket; /* NULL: the default path */
	enum engine_choice engine;
	const char *device; /* with ENGINE_CHOICE_CUDA alone; NULL: the first */
	uint32_t threads;   /* 0: one a CPU */
	enum log_level log_level;
	struct limits limits;
};

/* 0, or INVALID_ARGUMENT with the option, the rule and the value in err. Strings point into argv. */
int options_parse(struct options *ret, int argc, char **argv, struct error *err);

/* The help text, to stdout. */
void options_print_help(void);

#endif
