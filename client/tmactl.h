/* tmactl: one command, one file. A command is an entry in tmactl.c's table; it speaks to the service only
 * through tmaclient.h.
 *
 * What can fail returns 0 or -1 and leaves one line for the user in t->error; the exit code is 1 (the
 * service or a file failed) or 2 (bad usage), as said where the line was made.
 */
#ifndef CLIENT_TMACTL_H
#define CLIENT_TMACTL_H

#include <getopt.h>
#include <stdbool.h>

#include "tmaclient.h"

enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1, /* the service refused, or something failed */
	EXIT_USAGE = 2,
};

/* Why something failed: one line, and the exit code it asks for. */
struct failure {
	enum exit_code code;
	char text[768];
};

/* Fills f and returns -1. The first failure stays. */
int fail(struct failure *f, enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct tmactl {
	const char *socket;  /* --socket; NULL: the library's search */
	bool has_server_uid; /* --server-user */
	unsigned server_uid;
	bool json;
	bool quiet;     /* -q: no progress, nothing on success */
	int timeout_ms; /* -1: none */
	struct failure error;
};

struct cmd_entry {
	const char *name;
	const char *args;                                     /* its synopsis, after the name */
	const char *usage;                                    /* what it does and its options, for help */
	int (*exec)(struct tmactl *t, int argc, char **argv); /* argv[0] is the name; an exit code */
};

extern const struct cmd_entry cmd_bench;
extern const struct cmd_entry cmd_copy;
extern const struct cmd_entry cmd_explain;
extern const struct cmd_entry cmd_info;
extern const struct cmd_entry cmd_ping;
extern const struct cmd_entry cmd_regions;
extern const struct cmd_entry cmd_stats;

/* getopt_long over a command's own options (ended by a zero row; values from 256 up) and the common ones,
 * which it handles itself. The option's value, -1 after the last, '?' when tmactl_report is to end it: bad
 * usage, or help has been given. */
int tmactl_option(struct tmactl *t, int argc, char **argv, const struct option *own);

/* Parses a command line of no options of its own and no operands. */
int tmactl_no_arguments(struct tmactl *t, int argc, char **argv);

/* A connected client; NULL when that failed. Any thread may ask. */
tma_client *tmactl_connect(const struct tmactl *t, struct failure *f);

/* The client's last error as the failure. */
int tmactl_refused(const tma_client *client, struct failure *f);

/* Prints t->error as tmactl says things, and returns its exit code. */
int tmactl_report(const struct tmactl *t);

/* Prints the document as --json wants it. */
int tmactl_print_json(struct tmactl *t, const tma_document *document);

#endif
