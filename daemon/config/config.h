/* SPDX-License-Identifier: Apache-2.0 */
/* A config holds all settings of the service. The command line overrides tmad@NAME.conf, which overrides
 * tmad.conf, which overrides the defaults.
 *
 * The files are INI files (parsed by libinih) with sections [tmad], [limits], and [limits "WHO"] for one
 * user, group or cgroup. A file is parsed completely before any of its settings applies, and each error in it
 * is reported with its line. config_read makes a config, and config_free frees it; a reload makes a new one.
 */
#ifndef DAEMON_CONFIG_CONFIG_H
#define DAEMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "overrides.h"

#define CONFIG_FILES       2     /* tmad.conf and the file of the instance */
#define CONFIG_FILE_BYTES  65536 /* maximum size of a file */
#define CONFIG_ERRORS      32    /* maximum number of errors whose messages are kept; others are counted */
#define CONFIG_ERROR_BYTES 768

struct config_file {
	char *path;                   /* NULL: there is no such file to read */
	bool is_read;                 /* the file exists */
	char *text[SETTING_COUNT];    /* value of each setting as written; NULL: the file does not set it */
	unsigned line[SETTING_COUNT]; /* line of each setting; 0: the file does not set it */
};

struct config {
	struct options options; /* the result if n_errors is 0; strings point into `file` and argv */
	struct config_file file[CONFIG_FILES]; /* tmad.conf and tmad@NAME.conf */
	struct overrides overrides; /* overrides from both files; those of tmad@NAME.conf take precedence */
	struct subuids subuids;     /* ranges read from options.subuid_file */
	bool no_memory;             /* one of the errors is a lack of memory */
	unsigned n_errors;          /* number of errors, including those without a message in `error` */
	char error[CONFIG_ERRORS][CONFIG_ERROR_BYTES];
};

/* Reads the files that the command line selects, which may block. The result refers to argv. Returns NULL if
 * out of memory; otherwise the result may be used if its n_errors is 0. */
struct config *config_read(int argc, char **argv);

/* config_kept returns the settings of all files merged into one text, which the caller frees.
 * config_read_kept makes a config from such a text instead of files. Both return NULL if out of memory. */
char *config_kept(const struct config *config);
struct config *config_read_kept(int argc, char **argv, const char *text);

/* config may be NULL. */
void config_free(struct config *config);

/* Calls say for each warning: something that is not an error, but that administrators should know. */
void config_say_warnings(const struct config *config, void (*say)(const char *line));

/* Calls say for each error message, and once more with the number of further errors if there are any. */
void config_say_errors(const struct config *config, void (*say)(const char *line));

/* Implements tmad --check-config: prints each file and "ok" to stdout, or all errors to stderr. Returns
 * whether there are no errors. */
bool config_check(int argc, char **argv);

/* Parses text[size] as the contents of file, which is an element of config->file. Adds errors to config. */
void config_parse(struct config *config, struct config_file *file, const char *text, size_t size);

#endif
