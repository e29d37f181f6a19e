/* The settings of a tmad: its command line over tmad@NAME.conf over tmad.conf over the defaults.
 *
 * The files are INI (libinih), sections [tmad], [limits], and [limits "WHO"] of one user or group. A file is
 * read as a whole before anything of it counts, and everything that is wrong in it is said, each with its
 * line.
 */
#ifndef DAEMON_CONFIG_CONFIG_H
#define DAEMON_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "options.h"
#include "overrides.h"

#define CONFIG_FILES       2     /* tmad.conf, and the instance's */
#define CONFIG_FILE_BYTES  65536 /* at most */
#define CONFIG_ERRORS      32    /* told of one by one */
#define CONFIG_ERROR_BYTES 768

struct config_file {
	char *path;   /* NULL: there is none */
	bool is_read; /* it was there */
	char *text[SETTING_COUNT];
	unsigned line[SETTING_COUNT]; /* 0: it is not in there */
};

struct config {
	struct options options; /* what it came to, when there are no errors; points into file and argv */
	struct config_file file[CONFIG_FILES];
	struct overrides overrides; /* of both; what the instance's has counts */
	bool no_memory;             /* one of the errors is that */
	unsigned n_errors;          /* all of them; those past CONFIG_ERRORS are not told of */
	char error[CONFIG_ERRORS][CONFIG_ERROR_BYTES];
};

/* Reads the files that the command line asks for. Blocks as files do. NULL: no memory, at all; else n_errors
 * says whether it may be used. */
struct config *config_read(int argc, char **argv);

/* What the files of another came to, as one text, and a config of that text in the place of files. NULL: no
 * memory. */
char *config_kept(const struct config *config);
struct config *config_read_kept(int argc, char **argv, const char *text);

/* NULL is allowed. */
void config_free(struct config *config);

/* Calls say with each error, and a last line where there were more. */
void config_say_errors(const struct config *config, void (*say)(const char *line));

/* tmad --check-config: each file and "ok" to stdout, or all errors to stderr. Whether there are none. */
bool config_check(int argc, char **argv);

/* config_file.c: what config.c is made of. text[size] as if it stood in file; errors are added to config. */
void config_parse(struct config *config, struct config_file *file, const char *text, size_t size);

/* Opens file->path, and parses it when it is there; it must be when needed. */
void config_parse_file(struct config *config, struct config_file *file, bool needed);

void config_no_memory(struct config *config);
void config_error(struct config *config, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
