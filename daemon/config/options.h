/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of tmad are the options of options.def and the limits of limits.def, given on the command line
 * or in files. One parser reads their values, wherever they are given. */
#ifndef DAEMON_CONFIG_OPTIONS_H
#define DAEMON_CONFIG_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/loop/log.h"
#include "proto/status.h"
#include "limits.h"

enum option_id {
#define OPTION(id, name, argument, doc, place, applies) OPTION_##id,
#include "options.def"
	OPTION_COUNT
};

enum option_place {
	OPTION_PLACE_FILE, /* in a file or on the command line */
	OPTION_PLACE_LINE, /* on the command line alone */
};

enum option_applies {
	OPTION_APPLIES_RELOAD,
	OPTION_APPLIES_RESTART,
};

struct option_info {
	const char *name;
	const char *argument; /* NULL: it takes none */
	const char *doc;
	enum option_place place;
	enum option_applies applies;
};

extern const struct option_info option_infos[OPTION_COUNT];

/* A setting is a number: an enum option_id, or OPTION_COUNT + a LIMIT_INDEX_*. */
#define SETTING_COUNT      (OPTION_COUNT + LIMIT_COUNT)
#define SETTING_NAME_BYTES 64

enum engine_choice {
	ENGINE_CHOICE_AUTO,
	ENGINE_CHOICE_CPU,
	ENGINE_CHOICE_CUDA,
};

#define ENGINES_MOST 64 /* one for each device */

#define DEVICE_NAME_BYTES 64 /* of a device, as it is named */

enum options_action {
	OPTIONS_RUN,
	OPTIONS_CHECK_CONFIG,
	OPTIONS_HELP,
	OPTIONS_VERSION,
};

/* This is where a setting was given. */
struct setting_origin {
	const char *text; /* as written; NULL: not given, or it takes no argument */
	const char *file; /* NULL: the command line */
	unsigned line;
};

struct overrides;
struct subuids;

struct options {
	enum options_action action;
	const char *socket;    /* NULL: the default path */
	uint32_t socket_group; /* UINT32_MAX: the process's own */
	uint32_t socket_mode;
	enum engine_choice engine;
	const char *device; /* with ENGINE_CHOICE_CUDA alone; NULL: all */
	uint32_t threads;   /* 0: one a CPU */
	bool tune;
	bool trust_own_uid;
	const char *metrics;     /* address at which metrics are served; NULL: none */
	const char *subuid_file; /* NULL: the system's; "": none */
	const char *config;      /* NULL: the system's file if it exists; "": none */
	const char *instance;    /* NULL: none */
	enum log_level log_level;
	enum log_format log_format;
	struct limits limits;
	const struct overrides *overrides; /* overrides of limits, from files only; NULL: none */
	const struct subuids *subuids;     /* ranges that subuid_file has; NULL: none */
	struct setting_origin origin[SETTING_COUNT];
};

/* Sets the defaults. */
void options_init(struct options *options);

/* Applies the command line to *options. Returns 0, or INVALID_ARGUMENT with the option, the rule and the
 * value in err, and leaves *options alone. Strings point into argv. Not thread-safe. */
int options_parse(struct options *options, int argc, char **argv, struct error *err);

/* Parses one setting. String values point to what from points to. Returns 0, or INVALID_ARGUMENT with only
 * the rule in err, and leaves *options alone; setting_place names the place. */
int setting_parse(struct options *options, int setting, const struct setting_origin *from, struct error *err);

/* Lowers limits that were not given to those that bound them. */
void options_fit(struct options *options);

/* Checks one of the OPTIONS_RULES rules about several settings. Returns 0, or INVALID_ARGUMENT with the whole
 * message in text. */
#define OPTIONS_RULES (1 + LIMIT_BOUNDS)
int options_check(const struct options *options, int rule, char *text, size_t size);

/* Checks a limit given for a user or group against the one that bounds it, as in bound. Returns 0, or
 * INVALID_ARGUMENT with the whole message in text. */
int options_check_bound(const struct options *options, const struct limit_bound *bound, uint64_t less,
                        uint64_t more, const struct setting_origin *from, char *text, size_t size);

#define SETTING_PLACE_BYTES 512

/* Writes where a setting was given: "--threads=two" or "/etc/tmad/tmad.conf:7: threads = two". */
void setting_place(int setting, const struct setting_origin *from, char *text, size_t size);

/* Finds a setting by name, in which - and _ are the same. Returns -1 if there is none. */
int setting_find(const char *name);

/* Finds the setting with the nearest name among those that may be given in that place. Returns false if none
 * is near. */
bool setting_nearest(const char *name, enum option_place place, char nearest[SETTING_NAME_BYTES]);

/* Writes the name of a setting with dashes, as users do. */
void setting_name(int setting, char name[SETTING_NAME_BYTES]);

enum option_place setting_stands_in(int setting);
enum option_applies setting_applies(int setting);

/* Writes the value in a form that a file could have. */
void setting_value(const struct options *options, int setting, char *text, size_t size);

/* Prints the help text to stdout. */
void options_print_help(void);

/* Tells whether the option device stands for all devices: it is NULL or "all". Otherwise it names ordinals
 * and UUIDs, separated by commas. */
bool device_option_is_all(const char *devices);

/* Copies the next name of such a list to name, and returns it, or NULL if it is too long. *list is then what
 * follows, or NULL at the end. */
const char *device_option_next(const char **list, char name[DEVICE_NAME_BYTES]);

#endif
