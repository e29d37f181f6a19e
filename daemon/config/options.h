/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of tmad: the options of options.def and the limits of limits.def, which can be given on the
 * command line or in files. The same parser reads their values in both cases. */
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
	OPTION_PLACE_FILE, /* allowed in a file and on the command line */
	OPTION_PLACE_LINE, /* allowed on the command line only */
};

enum option_applies {
	OPTION_APPLIES_RELOAD,  /* a reload applies a new value */
	OPTION_APPLIES_RESTART, /* only a restart applies a new value */
};

struct option_info {
	const char *name;     /* without the two leading hyphens */
	const char *argument; /* placeholder of the argument in help texts; NULL: the option takes none */
	const char *doc;      /* text for --help and the manual */
	enum option_place place;
	enum option_applies applies;
};

/* Indexed by enum option_id. */
extern const struct option_info option_infos[OPTION_COUNT];

/* A setting is identified by a number: an enum option_id, or OPTION_COUNT plus a LIMIT_INDEX_*. */
#define SETTING_COUNT      (OPTION_COUNT + LIMIT_COUNT)
#define SETTING_NAME_BYTES 64 /* size of a buffer for a setting's name */

enum engine_choice {
	ENGINE_CHOICE_AUTO,
	ENGINE_CHOICE_CPU,
	ENGINE_CHOICE_CUDA,
};

#define ENGINES_MOST 64 /* maximum number of engines of a service, one for each device */

#define DEVICE_NAME_BYTES 64 /* size of a buffer for the name of a device: an ordinal or a UUID */

enum options_action {
	OPTIONS_RUN, /* serve */
	OPTIONS_CHECK_CONFIG,
	OPTIONS_HELP,
	OPTIONS_VERSION,
};

/* The place where a setting was given. The strings are borrowed from argv or from a config. */
struct setting_origin {
	const char *text; /* value as written; NULL: the setting was not given, or takes no argument */
	const char *file; /* path of the file; NULL: the command line */
	unsigned line;    /* line number in the file */
};

struct overrides;
struct subuids;

/* The values of all settings. Strings are borrowed from argv or from a config. */
struct options {
	enum options_action action;
	const char *socket;    /* path of the socket; NULL: the default path */
	uint32_t socket_group; /* gid of the socket; UINT32_MAX: the process's group */
	uint32_t socket_mode;  /* permission bits of the socket */
	enum engine_choice engine;
	const char *device; /* list of devices, allowed only with ENGINE_CHOICE_CUDA; NULL: all devices */
	uint32_t threads; /* threads of the cpu engine; 0: one for each CPU that the process can keep busy */
	bool tune;
	bool trust_own_uid;
	const char *metrics;     /* address at which metrics are served; NULL: none */
	const char *subuid_file; /* NULL: SUBUID_FILE (overrides.h); "": none */
	const char *config;      /* path of the file; NULL: the system's tmad.conf if it exists; "": none */
	const char *instance;    /* name of the instance; NULL: none */
	enum log_level log_level;
	enum log_format log_format;
	struct limits limits;
	const struct overrides *overrides; /* overrides of limits from the files; borrowed; NULL: none */
	const struct subuids *subuids;     /* ranges read from subuid_file; borrowed; NULL: none */
	struct setting_origin origin[SETTING_COUNT]; /* indexed by setting */
};

/* Sets *options to the defaults, which depend on the machine's memory and the limit on open descriptors. */
void options_init(struct options *options);

/* Applies the command line to *options. Returns 0, or INVALID_ARGUMENT with *options unchanged; err then
 * names the option, its value and the rule that it breaks. Strings in *options point into argv. Not
 * thread-safe, because getopt_long is not. */
int options_parse(struct options *options, int argc, char **argv, struct error *err);

/* Sets one setting to the value from->text, and its origin to *from. String values point to from->text.
 * Returns 0, or INVALID_ARGUMENT if the value breaks a rule; err then names only the rule, and the caller
 * adds the place (setting_place). */
int setting_parse(struct options *options, int setting, const struct setting_origin *from, struct error *err);

/* Lowers each limit that was not given explicitly to the limit that bounds it (limit_bounds). */
void options_fit(struct options *options);

/* Checks a rule that concerns several settings; rule is a number from 0 to OPTIONS_RULES - 1. Returns 0, or
 * INVALID_ARGUMENT with the complete message in text[size]. */
#define OPTIONS_RULES (1 + LIMIT_BOUNDS)
int options_check(const struct options *options, int rule, char *text, size_t size);

/* Checks the value `less` of the limit bound->less, which was given at `from`, against the value `more` of
 * the limit bound->more. Returns 0, or INVALID_ARGUMENT with the complete message in text[size] if `less` is
 * greater than `more`. */
int options_check_bound(const struct options *options, const struct limit_bound *bound, uint64_t less,
                        uint64_t more, const struct setting_origin *from, char *text, size_t size);

#define SETTING_PLACE_BYTES 512 /* recommended size of the text of setting_place */

/* Writes the place where a setting was given to text[size]: "--threads=two" or
 * "/etc/tmad/tmad.conf:7: threads = two". */
void setting_place(int setting, const struct setting_origin *from, char *text, size_t size);

/* Returns the setting with that name, or -1 if there is none. '-' and '_' are equivalent. */
int setting_find(const char *name);

/* Sets nearest to the most similar name of a setting that may be given in that place, for "did you mean"
 * messages. Returns false if no name is similar. */
bool setting_nearest(const char *name, enum option_place place, char nearest[SETTING_NAME_BYTES]);

/* Sets name to the name of a setting, with '-' instead of '_'. */
void setting_name(int setting, char name[SETTING_NAME_BYTES]);

/* Return the place in which a setting may be given, and what it takes to apply a new value. */
enum option_place setting_stands_in(int setting);
enum option_applies setting_applies(int setting);

/* Writes the current value of a setting to text[size], as it could be written in a file, or "the default". */
void setting_value(const struct options *options, int setting, char *text, size_t size);

/* Prints the help text to stdout. */
void options_print_help(void);

/* Returns whether a value of the option device stands for all devices: it is NULL or "all". Any other value
 * is a list of ordinals and UUIDs separated by commas. */
bool device_option_is_all(const char *devices);

/* Copies the first name of such a list to name, and advances *list to the next name, or sets it to NULL at
 * the end. Returns name, or NULL if the name is too long. */
const char *device_option_next(const char **list, char name[DEVICE_NAME_BYTES]);

#endif
