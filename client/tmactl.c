/* tmactl: the table of commands, what they share, and main. */
#include "tmactl.h"

#include <errno.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tmactl_help(struct tmactl *t, const char *name);
static const struct cmd_entry *cmd_find(const char *name);

static const struct cmd_entry *const commands[] = {
	&cmd_bench, &cmd_copy, &cmd_explain, &cmd_info, &cmd_ping, &cmd_regions, &cmd_stats,
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

enum { OPT_HELP = 1, OPT_VERSION, OPT_SOCKET, OPT_SERVER_USER, OPT_JSON, OPT_TIMEOUT };

static const struct option common_options[] = {
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "server-user", required_argument, NULL, OPT_SERVER_USER },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "quiet", no_argument, NULL, 'q' },
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },
};

#define N_COMMON    (sizeof common_options / sizeof common_options[0])
#define MAX_OPTIONS 32

static const char help_text[] =
    "usage: tmactl [--socket PATH] [--server-user USER] [--json] [--timeout MS] COMMAND ...\n"
    "\n"
    "Tensor copy, transpose and pad by the tmad service.\n"
    "\n"
    "  --socket PATH  where tmad listens; else $TMAD_SOCKET, /run/tmad/tmad.sock,\n"
    "                 $XDG_RUNTIME_DIR/tmad/tmad.sock\n"
    "  --server-user USER\n"
    "                 whom tmad may run as, by name or uid, besides root and this user\n"
    "  --json         machine-readable output\n"
    "  -q, --quiet    no progress, nothing on success\n"
    "  --timeout MS   give up when a call takes longer\n"
    "  --version, --help\n"
    "\n"
    "commands (tmactl help COMMAND says more):\n";

int main(int argc, char **argv)
{
	struct tmactl t = { .timeout_ms = -1 };
	const struct cmd_entry *cmd;
	int first;
	int code;

	if (tmactl_option(&t, argc, argv, NULL) != -1)
		return tmactl_report(&t);
	first = optind;
	if (first == argc) {
		fail(&t.error, EXIT_USAGE, "no command; tmactl help lists them");
		return tmactl_report(&t);
	}
	if (!strcmp(argv[first], "help"))
		return tmactl_help(&t, argv[first + 1]);
	cmd = cmd_find(argv[first]);
	if (!cmd) {
		fail(&t.error, EXIT_USAGE, "%s is no command; tmactl help lists them", argv[first]);
		return tmactl_report(&t);
	}
	optind = 0; /* getopt starts anew */
	code = cmd->exec(&t, argc - first, argv + first);
	if (!code && (fflush(stdout) || ferror(stdout))) {
		fail(&t.error, EXIT_FAILED, "standard output cannot be written (%s)", strerror(errno));
		return tmactl_report(&t);
	}
	return code;
}

static const struct cmd_entry *cmd_find(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i]->name, name))
			return commands[i];
	return NULL;
}

static int tmactl_help(struct tmactl *t, const char *name)
{
	const struct cmd_entry *cmd = name ? cmd_find(name) : NULL;

	if (name && !cmd) {
		fail(&t->error, EXIT_USAGE, "%s is no command; tmactl help lists them", name);
		return tmactl_report(t);
	}
	if (cmd) {
		printf("usage: tmactl %s%s%s\n\n%s", cmd->name, *cmd->args ? " " : "", cmd->args, cmd->usage);
		return EXIT_DONE;
	}
	fputs(help_text, stdout);
	for (size_t i = 0; i < N_COMMANDS; i++)
		printf("  %-8s %.*s\n", commands[i]->name, (int)strcspn(commands[i]->usage, "\n"),
		       commands[i]->usage);
	return EXIT_DONE;
}

/* ---- Options --------------------------------------------------------------------------------------- */

static int set_timeout(struct tmactl *t, const char *text)
{
	char *end;
	long ms;

	errno = 0;
	ms = strtol(text, &end, 10);
	if (errno || end == text || *end || ms < 1 || ms > 86400000)
		return fail(&t->error, EXIT_USAGE, "--timeout %s: milliseconds, 1 to 86400000", text);
	t->timeout_ms = (int)ms;
	return 0;
}

static int set_server_user(struct tmactl *t, const char *text)
{
	const struct passwd *user = getpwnam(text);
	char *end;
	unsigned long uid;

	errno = 0;
	uid = user ? user->pw_uid : strtoul(text, &end, 10);
	if (!user && (errno || *text < '0' || *text > '9' || *end || uid >= UINT32_MAX))
		return fail(&t->error, EXIT_USAGE, "--server-user %s: no user of that name, and no uid",
		            text);
	t->has_server_uid = true;
	t->server_uid = (unsigned)uid;
	return 0;
}

int tmactl_option(struct tmactl *t, int argc, char **argv, const struct option *own)
{
	/* "+": the first word of the top level that is no option is the command. */
	const char *letters = own ? ":q" : "+:q";
	struct option options[MAX_OPTIONS + 1] = { 0 };
	size_t n = N_COMMON;
	int opt;

	memcpy(options, common_options, sizeof common_options);
	for (; own && own->name && n < MAX_OPTIONS; own++)
		options[n++] = *own;
	opterr = 0;
	for (;;) {
		opt = getopt_long(argc, argv, letters, options, NULL);
		switch (opt) {
		case OPT_HELP:
			tmactl_help(t, cmd_find(argv[0]) ? argv[0] : NULL);
			return '?';
		case OPT_VERSION:
			printf("tmactl %s\n", tma_version());
			return '?';
		case OPT_SOCKET:
			t->socket = optarg;
			break;
		case OPT_SERVER_USER:
			if (set_server_user(t, optarg) < 0)
				return '?';
			break;
		case OPT_JSON:
			t->json = true;
			break;
		case 'q':
			t->quiet = true;
			break;
		case OPT_TIMEOUT:
			if (set_timeout(t, optarg) < 0)
				return '?';
			break;
		case ':':
			fail(&t->error, EXIT_USAGE, "%s needs a value", argv[optind - 1]);
			return '?';
		case '?':
			fail(&t->error, EXIT_USAGE,
			     "%s is no option here; tmactl help COMMAND lists those there are",
			     argv[optind - 1]);
			return '?';
		default:
			return opt;
		}
	}
}

int tmactl_no_arguments(struct tmactl *t, int argc, char **argv)
{
	static const struct option none[] = { { 0 } };

	if (tmactl_option(t, argc, argv, none) != -1)
		return -1;
	if (optind < argc)
		return fail(&t->error, EXIT_USAGE, "%s takes no argument, but was given %s", argv[0],
		            argv[optind]);
	return 0;
}

/* ---- The service ----------------------------------------------------------------------------------- */

tma_client *tmactl_connect(const struct tmactl *t, struct failure *f)
{
	tma_client *client = tma_new();
	int rc;

	if (!client) {
		fail(f, EXIT_FAILED, "out of memory");
		return NULL;
	}
	tma_set_timeout(client, t->timeout_ms);
	tma_set_reconnect(client, -1); /* a command is short, and mover.c holds its connections */
	if (t->has_server_uid)
		tma_set_server_uid(client, t->server_uid);
	rc = tma_connect(client, t->socket);
	if (!rc)
		return client;
	if (rc == TMA_DISCONNECTED)
		fail(f, EXIT_FAILED,
		     "%s\n        start it: systemctl start tmad.socket, or: tmad --engine=cpu --socket %s",
		     tma_last_error(client), tma_socket_path(client));
	else
		tmactl_refused(client, f);
	tma_free(client);
	return NULL;
}

int tmactl_refused(const tma_client *client, struct failure *f)
{
	return fail(f, EXIT_FAILED, "%s", tma_last_error(client));
}

/* ---- What is said ---------------------------------------------------------------------------------- */

int tmactl_report(const struct tmactl *t)
{
	if (t->error.code)
		fprintf(stderr, "tmactl: %s\n", t->error.text);
	return t->error.code;
}

int tmactl_print_json(struct tmactl *t, const tma_document *document)
{
	char *json = tma_document_json(document, 2);

	if (!json)
		return fail(&t->error, EXIT_FAILED, "out of memory");
	puts(json);
	free(json);
	return 0;
}
