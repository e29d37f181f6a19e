/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the commands of tmactl share: the parsed common options, errors, connections and output. Each
 * command is one cmd_*.c, declared in commands.def, and speaks to the service only through tmaclient.h.
 *
 * A function that can fail returns 0 or -1 and leaves a message for the user in a struct failure, usually
 * t->error. fail() also records the exit code there: EXIT_FAILED if the service or a file failed, EXIT_USAGE
 * if the command line is wrong.
 */
#ifndef CLIENT_TMACTL_TMACTL_H
#define CLIENT_TMACTL_TMACTL_H

#include <getopt.h>
#include <stdbool.h>

#include "commands.h"
#include "client/tmaclient.h"

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1, /* the service refused a request, or something failed */
	EXIT_USAGE = 2,
};

/* The reason why something failed. Zero-initialized, it holds no failure. */
struct failure {
	enum exit_code code; /* EXIT_DONE: nothing has failed */
	int status;          /* negative status of the service or the library; 0: tmactl itself failed */
	char text[768];      /* message without the "tmactl: " in front of it */
};

/* Fills f and returns -1. Does nothing but return -1 if f already holds a failure. */
int fail(struct failure *f, enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the status that belongs to the next fail(). Does nothing if f already holds a failure. */
void fail_status(struct failure *f, int status);

/* Copies another failure to f, unless f already holds one, and returns -1. */
int fail_as(struct failure *f, const struct failure *why);

/* Returns the failure's name in JSON output: the name of its status, such as QUOTA, or else USAGE or FAILED
 * according to its exit code. */
const char *failure_name(const struct failure *f);

struct tmactl {
	const struct cmd_entry *cmd; /* NULL: the command is not known yet */
	const char *socket;          /* --socket; NULL: the library looks for the service */
	bool has_server_uid;         /* --server-user was given */
	unsigned server_uid;
	bool may_be_alone; /* set by a command that may move memory in this process if there is no service */
	bool verbose;      /* --verbose */
	bool json;
	bool quiet;           /* --quiet: no progress, and no output on success */
	int timeout_ms;       /* --timeout; -1: none */
	int operands;         /* index of the first operand in the argv that was scanned last */
	bool stdout_is_taken; /* standard output carries an array, so failures go to standard error */
	bool has_said;        /* the command has printed a JSON document that contains the failure */
	struct failure error;
};

/* Parses the next option of the command line as getopt_long does, and handles the common options itself.
 * Returns the OPT_* of an option of the command, -1 after the last, or '?' if the command is to end with
 * tmactl_report(): the usage is wrong, or --help or --version has been answered. */
int tmactl_option(struct tmactl *t, int argc, char **argv);

/* Parses the command line of a command that has neither operands nor options of its own. Returns -1 if the
 * command is to end with tmactl_report(). */
int tmactl_no_arguments(struct tmactl *t, int argc, char **argv);

/* Prints the help of a command, or the list of commands if name is NULL. Fails if there is no such
 * command. */
int tmactl_help(struct tmactl *t, const char *name);

/* Sets t->error to the failure that there is no command of that name, and returns -1. The message suggests a
 * similar name. */
int tmactl_no_command(struct tmactl *t, const char *name);

/* Returns the index of text among the words. If it is none of them, sets f to a message that lists them and
 * returns -1. */
int tmactl_word(enum words words, const char *flag, const char *text, struct failure *f);

/* Returns how many milliseconds copy and bench wait for a service that has gone away after it answered:
 * --timeout, or PATIENCE_MS without it. */
#define PATIENCE_MS 10000
int tmactl_patience_ms(const struct tmactl *t);

/* Returns a connected client, which the caller frees, or NULL with f set. May be called from any thread. */
tma_client *tmactl_connect(const struct tmactl *t, struct failure *f);

/* Sets f to the client's last error and returns -1. */
int tmactl_refused(const tma_client *client, struct failure *f);

/* Prints t->error, if there is one, to standard error and, with --json, as a document too. Returns the exit
 * code. */
int tmactl_report(const struct tmactl *t);

/* Flushes standard output and returns the exit code of a command that has succeeded: output that could not be
 * written makes it EXIT_FAILED. */
int tmactl_finish(struct tmactl *t);

/* Prints the document for --json. */
int tmactl_print_json(struct tmactl *t, const tma_document *document);

#endif
