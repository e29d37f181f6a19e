/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a tmad: the command line overrides tmad@NAME.conf, which overrides tmad.conf, which
 * overrides the defaults.
 *
 * The files are INI (libinih), with sections [tmad], [limits], and [limits "WHO"] for one user, group or
 * cgroup. A file is read completely before any of it applies, and every error in it is reported with its
 * line. config_read makes a config, config_free frees it; a reload makes another one.
 */
#ifndef DAEMON_CONFIG_CONFIG_H
#define DAEMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "overrides.h"
#include "subuids.h"

#define CONFIG_FILES       2     /* tmad.conf and that of the instance */
#define CONFIG_FILE_BYTES  65536 /* at most */
#define CONFIG_ERRORS      32    /* reported one by one */
#define CONFIG_ERROR_BYTES 768

struct config_file {
	char *path;   /* NULL: no such file */
	bool is_read; /* it exists */
	char *text[SETTING_COUNT];
	unsigned line[SETTING_COUNT]; /* 0: the file does not have it */
};

struct config {
	struct options options; /* the result, if there are no errors; points into file and argv */
	struct config_file file[CONFIG_FILES];
	struct overrides overrides; /* of both files; those of the instance override */
	struct subuids subuids;     /* of the file that options name */
	bool no_memory;             /* set if this is one of the errors */
	unsigned n_errors;          /* all errors; those past CONFIG_ERRORS are only counted */
	char error[CONFIG_ERRORS][CONFIG_ERROR_BYTES];
};

/* Reads the files that the command line asks for; blocks. NULL: no memory at all; otherwise n_errors says
 * whether the result may be used. */
struct config *config_read(int argc, char **argv);

/* config_kept: the outcome of the files as one text; config_read_kept: a config from that text instead of
 * files. NULL: no memory. */
char *config_kept(const struct config *config);
struct config *config_read_kept(int argc, char **argv, const char *text);

/* NULL is allowed. */
void config_free(struct config *config);

/* Calls say with what is no error, but should be known. */
void config_say_warnings(const struct config *config, void (*say)(const char *line));

/* Calls say with each error, and with a last line if there were more. */
void config_say_errors(const struct config *config, void (*say)(const char *line));

/* tmad --check-config: prints each file and "ok" to stdout, or all errors to stderr. Returns whether there
 * are none. */
bool config_check(int argc, char **argv);

/* config_file.c, for config.c: parses text[size] as the contents of file; errors are added to config. */
void config_parse(struct config *config, struct config_file *file, const char *text, size_t size);

/* Opens and parses file->path if it exists; needed: a missing file is an error. */
void config_parse_file(struct config *config, struct config_file *file, bool needed);

void config_no_memory(struct config *config);
void config_error(struct config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
