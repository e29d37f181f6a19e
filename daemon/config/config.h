/* SPDX-License-Identifier: Apache-2.0 */
/* A config has the settings of a tmad. The command line overrides tmad@NAME.conf, which overrides tmad.conf,
 * which overrides the defaults.
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

#define CONFIG_FILES       2     /* tmad.conf and the file of the instance */
#define CONFIG_FILE_BYTES  65536 /* most bytes of a file */
#define CONFIG_ERRORS      32    /* errors that are reported one by one; others are counted */
#define CONFIG_ERROR_BYTES 768

struct config_file {
	char *path;   /* NULL: no such file */
	bool is_read; /* the file exists and has been read */
	char *text[SETTING_COUNT];
	unsigned line[SETTING_COUNT]; /* 0: the file does not have it */
};

struct config {
	struct options options; /* the result, if there are no errors; points into file and argv */
	struct config_file file[CONFIG_FILES];
	struct overrides overrides; /* overrides of both files; those of the instance's have precedence */
	struct subuids subuids;     /* ranges of the file that options name */
	bool no_memory;             /* one of the errors is a lack of memory */
	unsigned n_errors;          /* number of errors; those past CONFIG_ERRORS are only counted */
	char error[CONFIG_ERRORS][CONFIG_ERROR_BYTES];
};

/* Reads the files that the command line asks for, which blocks. Returns NULL if there is no memory at all;
 * otherwise n_errors says whether the result may be used. */
struct config *config_read(int argc, char **argv);

/* config_kept returns the outcome of the files as one text, and config_read_kept makes a config of that text
 * instead of files. Both return NULL if out of memory. */
char *config_kept(const struct config *config);
struct config *config_read_kept(int argc, char **argv, const char *text);

/* NULL is allowed. */
void config_free(struct config *config);

/* Calls say with each warning: it is no error, but users should know of it. */
void config_say_warnings(const struct config *config, void (*say)(const char *line));

/* Calls say with each error, and with a last line if there were more. */
void config_say_errors(const struct config *config, void (*say)(const char *line));

/* Does what tmad --check-config asks for: prints each file and "ok" to stdout, or all errors to stderr.
 * Returns whether there are no errors. */
bool config_check(int argc, char **argv);

/* Parses text[size] as the contents of file; errors are added to config. */
void config_parse(struct config *config, struct config_file *file, const char *text, size_t size);

#endif
