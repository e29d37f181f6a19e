/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl: one command, one file. A command is a row of commands.def; it speaks to the service only through
 * tmaclient.h.
 *
 * What can fail returns 0 or -1 and leaves one line for the user in t->error; the exit code is 1 (the
 * service or a file failed) or 2 (bad usage), as said where the line was made.
 */
#ifndef CLIENT_TMACTL_TMACTL_H
#define CLIENT_TMACTL_TMACTL_H

#include <getopt.h>
#include <stdbool.h>

#include "commands.h"
#include "client/tmaclient.h"

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1, /* the service refused, or something failed */
	EXIT_USAGE = 2,
};

/* Why something failed: one line, and the exit code it asks for. */
struct failure {
	enum exit_code code;
	int status; /* of the service or the library, negative; 0: tmactl itself says it */
	char text[768];
};

/* Fills f and returns -1. The first failure stays. */
int fail(struct failure *f, enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Gives the failure that is said next a status, unless there is one already. */
void fail_status(struct failure *f, int status);

/* Does what fail does, for what has failed elsewhere. */
int fail_as(struct failure *f, const struct failure *why);

/* Returns what --json calls it: a status such as QUOTA, or USAGE or FAILED by its exit code. */
const char *failure_name(const struct failure *f);

struct tmactl {
	const struct cmd_entry *cmd; /* NULL: not known yet */
	const char *socket;          /* --socket; NULL: the library's search */
	bool has_server_uid;         /* --server-user */
	unsigned server_uid;
	bool
	    may_be_alone; /* Where there is no service, and none was named, the command does its work here. */
	bool verbose;     /* -v */
	bool json;
	bool quiet;           /* -q: no progress, nothing on success */
	int timeout_ms;       /* -1: none */
	int operands;         /* index of the first one in the command's argv */
	bool stdout_is_taken; /* an array goes there, so what is said goes to standard error */
	bool has_said;        /* a document has been printed that tells of the failure, too */
	struct failure error;
};

/* getopt_long over the command's own options and the common ones, which it handles itself. OPT_*, -1 after
 * the last, '?' when tmactl_report is to end it: bad usage, or help has been given. */
int tmactl_option(struct tmactl *t, int argc, char **argv);

/* Parses a command line of no options of its own and no operands. */
int tmactl_no_arguments(struct tmactl *t, int argc, char **argv);

/* A command's help, or with NULL what commands there are. */
int tmactl_help(struct tmactl *t, const char *name);

/* The failure that the name is no command's. */
int tmactl_no_command(struct tmactl *t, const char *name);

/* Which of the words text is; -1 with f set, which lists them, when it is none. */
int tmactl_word(enum words words, const char *flag, const char *text, struct failure *f);

/* How long a service that was there and has gone is waited for: --timeout, else PATIENCE_MS. */
#define PATIENCE_MS 10000
int tmactl_patience_ms(const struct tmactl *t);

/* A connected client; NULL when that failed. Any thread may ask. */
tma_client *tmactl_connect(const struct tmactl *t, struct failure *f);

/* The client's last error as the failure. */
int tmactl_refused(const tma_client *client, struct failure *f);

/* Prints t->error as tmactl says things, and for --json as a document too, and returns its exit code. */
int tmactl_report(const struct tmactl *t);

/* The exit code of a command that went well: one that could not be heard has failed. */
int tmactl_finish(struct tmactl *t);

/* Prints the document as --json wants it. */
int tmactl_print_json(struct tmactl *t, const tma_document *document);

#endif
