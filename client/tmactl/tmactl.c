/* SPDX-License-Identifier: Apache-2.0 */
/* main() of tmactl: parses the common options and runs a command; connects, and reports failures for all
 * commands. */
#include "tmactl.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tmactl/terminal/colour.h"
#include "client/tmactl/terminal/print.h"
#include "proto/program.h"

#define MAX_OPTIONS 64 /* maximum number of a command's own options and the common ones together */

static int next_option(struct tmactl *t, int argc, char **argv);

/* Looks for --json first, wherever it stands, so that even an error in an option before it is reported as
 * JSON. getopt moves the operands to the end of argv meanwhile. */
static void look_ahead(struct tmactl *t, int argc, char **argv)
{
	int opt;

	optind = 0; /* 0 makes getopt start a new scan. */
	while ((opt = next_option(t, argc, argv)) != -1)
		t->json |= opt == OPT_JSON;
	t->operands = optind;
	optind = 0;
}

int main(int argc, char **argv)
{
	struct tmactl t = { .timeout_ms = -1 };
	int first;
	int code;

	standard_fds_hold();
	signal(SIGPIPE, SIG_IGN); /* A closed pipe is reported by the write that fails. */
	look_ahead(&t, argc, argv);
	if (tmactl_option(&t, argc, argv) != -1)
		return tmactl_finish(&t);
	first = optind;
	if (first == argc) {
		fail(&t.error, EXIT_USAGE, "no command; tmactl help lists the commands");
		return tmactl_report(&t);
	}
	t.cmd = cmd_find(argv[first]);
	look_ahead(&t, argc - first, argv + first);
	if (!t.cmd) {
		tmactl_no_command(&t, argv[first]);
		return tmactl_report(&t);
	}
	code = t.cmd->exec(&t, argc - first, argv + first);
	return code ? code : tmactl_finish(&t);
}

/* ---- Options --------------------------------------------------------------------------------------- */

static int set_timeout(struct tmactl *t, const char *text)
{
	char *end;
	long ms;

	errno = 0;
	ms = strtol(text, &end, 10);
	if (errno || end == text || *end || ms < 1 || ms > 86400000)
		return fail(&t->error, EXIT_USAGE, "--timeout %s: expected milliseconds, 1 to 86400000",
		            text);
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
		return fail(&t->error, EXIT_USAGE, "--server-user %s: neither a user's name nor a uid", text);
	t->has_server_uid = true;
	t->server_uid = (unsigned)uid;
	return 0;
}

int tmactl_word(enum words words, const char *flag, const char *text, struct failure *f)
{
	char list[256] = "";
	const char *word;

	for (size_t i = 0; (word = cmd_word(words, i)); i++) {
		size_t len = strlen(list);

		if (!strcmp(word, text))
			return (int)i;
		snprintf(list + len, sizeof list - len, "%s%s", i ? ", " : "", word);
	}
	return fail(f, EXIT_USAGE, "%s %s: expected one of %s", flag, text, list);
}

static int set_colour(struct tmactl *t, const char *text)
{
	int when = tmactl_word(WORDS_WHEN, "--color", text, &t->error);

	if (when >= 0)
		colour_set((enum colour_when)when);
	return when < 0 ? -1 : 0;
}

/* Appends the options of a table to the arguments of getopt_long: long options from index n on, and letters.
 * Returns the new number of long options. */
static size_t add_options(const struct cmd_row *rows, struct option *options, size_t n, char *letters)
{
	const struct cmd_row *row;
	char *letter = letters + strlen(letters);

	for (size_t i = 0; n < MAX_OPTIONS && (row = cmd_next_option(rows, &i)); n++) {
		int argument = row->argument ? required_argument : no_argument;

		options[n] = (struct option){ row->name, argument, NULL, row->value };
		if (row->letter)
			*letter++ = row->letter;
		if (row->letter && row->argument)
			*letter++ = ':';
	}
	*letter = '\0';
	return n;
}

static int option_of_letter(const struct cmd_row *rows, int letter)
{
	const struct cmd_row *row;

	for (size_t i = 0; (row = cmd_next_option(rows, &i));)
		if (row->letter == letter)
			return row->value;
	return OPT_NONE;
}

static int next_option(struct tmactl *t, int argc, char **argv)
{
	/* "+" stops the scan at the first word that is not an option, which is the command. The "+" is left
	 * out once the command is known, because the command's options may follow its operands. */
	char letters[2 * MAX_OPTIONS + 3] = "+:";
	struct option options[MAX_OPTIONS + 1] = { 0 };
	size_t n = add_options(cmd_common, options, 0, letters);
	int opt;

	if (t->cmd)
		add_options(t->cmd->rows, options, n, letters);
	opterr = 0;
	opt = getopt_long(argc, argv, t->cmd ? letters + 1 : letters, options, NULL);
	if (opt == -1 || opt == '?' || opt == ':' || opt > OPT_NONE)
		return opt;
	n = (size_t)option_of_letter(cmd_common, opt);
	return n == OPT_NONE ? option_of_letter(t->cmd->rows, opt) : (int)n;
}

/* Handles a common option. Returns 1 if it did, 0 if the option is not a common one, or -1 if the command is
 * to end, because of an error or because help or the version was printed. */
static int common_option(struct tmactl *t, int opt)
{
	switch (opt) {
	case OPT_HELP:
		tmactl_help(t, t->cmd ? t->cmd->name : NULL);
		return -1;
	case OPT_VERSION:
		printf("tmactl %s\n", tma_version());
		return -1;
	case OPT_SOCKET:
		t->socket = optarg;
		return 1;
	case OPT_SERVER_USER:
		return set_server_user(t, optarg) < 0 ? -1 : 1;
	case OPT_JSON:
		t->json = true;
		return 1;
	case OPT_VERBOSE:
		t->verbose = true;
		return 1;
	case OPT_QUIET:
		t->quiet = true;
		return 1;
	case OPT_TIMEOUT:
		return set_timeout(t, optarg) < 0 ? -1 : 1;
	case OPT_COLOR:
		return set_colour(t, optarg) < 0 ? -1 : 1;
	default:
		return 0;
	}
}

/* Sets t->error to the failure for an option that getopt_long refused: an unknown name or letter, a prefix of
 * several names, or a value for an option that takes none. */
static int refuse_option(struct tmactl *t, const char *text)
{
	const char *nearest = NULL;
	char name[64];

	if (optopt && optopt < OPT_NONE)
		snprintf(name, sizeof name, "-%c", optopt);
	else
		snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
	if (optopt > OPT_NONE)
		return fail(&t->error, EXIT_USAGE, "%s takes no value", name);
	if (!optopt)
		nearest = cmd_option_nearest(t->cmd ? t->cmd->rows : NULL, name + 2);
	if (nearest)
		return fail(&t->error, EXIT_USAGE, "unknown option %s; did you mean --%s?", name, nearest);
	return fail(&t->error, EXIT_USAGE, "unknown option %s; tmactl help%s%s lists the options", name,
	            t->cmd ? " " : "", t->cmd ? t->cmd->name : "");
}

int tmactl_no_command(struct tmactl *t, const char *name)
{
	const char *nearest = cmd_find_nearest(name);

	if (nearest)
		return fail(&t->error, EXIT_USAGE, "unknown command %s; did you mean %s?", name, nearest);
	return fail(&t->error, EXIT_USAGE, "unknown command %s; tmactl help lists the commands", name);
}

int tmactl_option(struct tmactl *t, int argc, char **argv)
{
	int opt, rc;

	for (;;) {
		opt = next_option(t, argc, argv);
		if (opt == -1)
			return -1;
		if (opt == ':') {
			fail(&t->error, EXIT_USAGE, "%s needs a value", argv[optind - 1]);
			return '?';
		}
		if (opt == '?') {
			refuse_option(t, argv[optind - 1]);
			return '?';
		}
		rc = common_option(t, opt);
		if (rc)
			opt = '?';
		if (rc <= 0)
			return opt;
	}
}

int tmactl_no_arguments(struct tmactl *t, int argc, char **argv)
{
	if (tmactl_option(t, argc, argv) != -1)
		return -1;
	if (optind < argc)
		return fail(&t->error, EXIT_USAGE, "%s takes no argument, but was given %s", argv[0],
		            argv[optind]);
	return 0;
}

/* ---- The service ----------------------------------------------------------------------------------- */

/* Returns whether membership of the group grants far more than access to a service, so that joining it must
 * not be suggested. */
static bool is_privileged(const struct group *group)
{
	static const char *const names[] = {
		"adm",   "admin", "disk", "docker",          "kmem", "kvm",  "libvirt", "lxd", "shadow",
		"staff", "sudo",  "sys",  "systemd-journal", "tty",  "wheel"
	};

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(group->gr_name, names[i]))
			return true;
	return group->gr_gid == 0;
}

/* Returns the group whose members may connect to a socket that this user may not connect to. Returns NULL if
 * membership of a group is not what is missing. */
static const struct group *group_that_may(const char *path)
{
	struct stat st;

	if (*path == '@' || stat(path, &st) < 0 || !(st.st_mode & S_IWGRP) || !access(path, W_OK))
		return NULL;
	return getgrgid(st.st_gid);
}

/* Sets f to the failure that no service listens. The message says how to start one: at the path that was
 * tried if this user can create a socket there, otherwise at one where the user can. */
static void suggest_start(const tma_client *client, struct failure *f)
{
	const char *why = tma_last_error(client), *path = tma_socket_path(client);
	char own[OWN_SOCKET_BYTES];

	if (own_socket_is_possible(path)) {
		fail(f, EXIT_FAILED,
		     "%s\n        start it: systemctl start tmad.socket, or: tmad --engine=cpu --socket %s",
		     why, path);
		return;
	}
	own_socket_path(own);
	fail(f, EXIT_FAILED,
	     "%s\n        start it: systemctl start tmad.socket, or: tmad --engine=cpu --socket %s\n"
	     "        and use that: tmactl --socket %s, or: export TMAD_SOCKET=%s",
	     why, own, own, own);
}

static void refuse_connection(const tma_client *client, int rc, struct failure *f)
{
	const char *why = tma_last_error(client);
	const struct group *group;

	if (rc == TMA_DISCONNECTED) {
		suggest_start(client, f);
		return;
	}
	group = rc == TMA_PERMISSION ? group_that_may(tma_socket_path(client)) : NULL;
	if (!group)
		tmactl_refused(client, f);
	else if (is_privileged(group))
		fail(f, EXIT_FAILED,
		     "%s\n        its group, %s, is for administrators: give the socket a group of its own "
		     "(SocketGroup= in tmad.socket, or tmad --socket-group)",
		     why, group->gr_name);
	else
		fail(f, EXIT_FAILED,
		     "%s\n        members of group %s may connect: usermod -aG %s USER, and log in again",
		     why, group->gr_name, group->gr_name);
}

int tmactl_patience_ms(const struct tmactl *t)
{
	return t->timeout_ms >= 0 ? t->timeout_ms : PATIENCE_MS;
}

/* Lets the client do its work in this process, because there is no service. If libtma-local, which that
 * needs, is not installed, tries the service once more, so that the client's last error is about the service.
 * Returns 0, or the negative status with which the service was first tried. */
static int connect_here(const struct tmactl *t, tma_client *client)
{
	static atomic_bool is_said;
	char why[512];
	int rc = tma_last_status(client);

	snprintf(why, sizeof why, "%s", tma_last_error(client));
	if (tma_connect(client, "local:") < 0)
		return tma_connect(client, t->socket) < 0 ? rc : 0;
	if (t->verbose && !atomic_exchange(&is_said, true))
		fprintf(stderr, "tmactl: %s; this process does the work\n", why);
	return 0;
}

tma_client *tmactl_connect(const struct tmactl *t, struct failure *f)
{
	tma_client *client = tma_new();
	int rc;

	if (!client) {
		fail(f, EXIT_FAILED, "out of memory");
		return NULL;
	}
	tma_set_timeout(client, t->timeout_ms);
	tma_set_reconnect(client, -1); /* Only copy and bench reconnect, and they do it themselves. */
	if (t->has_server_uid)
		tma_set_server_uid(client, t->server_uid);
	rc = tma_connect(client, t->socket);
	if (rc == TMA_DISCONNECTED && t->may_be_alone && !t->socket && !*(getenv("TMAD_SOCKET") ?: ""))
		rc = connect_here(t, client);
	if (!rc)
		return client;
	fail_status(f, rc);
	refuse_connection(client, rc, f);
	tma_free(client);
	return NULL;
}

int tmactl_refused(const tma_client *client, struct failure *f)
{
	fail_status(f, tma_last_status(client));
	return fail(f, EXIT_FAILED, "%s", tma_last_error(client));
}

/* ---- What is said ---------------------------------------------------------------------------------- */

static void print_failure(FILE *file, const struct failure *f)
{
	fprintf(file, "{\"status\": \"%s\", \"message\": ", failure_name(f));
	print_json_to(file, f->text, strlen(f->text), 1);
	fprintf(file, ", \"exit_code\": %d}\n", f->code);
}

int tmactl_report(const struct tmactl *t)
{
	if (!t->error.code)
		return EXIT_DONE;
	fprintf(stderr, "tmactl: %s\n", t->error.text);
	if (t->json && !t->has_said)
		print_failure(t->stdout_is_taken ? stderr : stdout, &t->error);
	return t->error.code;
}

static bool is_pipe_broken(void)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

	return poll(&out, 1, 0) > 0 && out.revents & POLLERR;
}

int tmactl_finish(struct tmactl *t)
{
	bool failed = fflush(stdout) != 0;

	if (!failed && !ferror(stdout))
		return tmactl_report(t);
	if (!t->error.code && is_pipe_broken())
		return EXIT_FAILED; /* The reader has closed the pipe on purpose, so no message is printed. */
	fail(&t->error, EXIT_FAILED, "standard output cannot be written%s%s%s", failed ? " (" : "",
	     failed ? strerror(errno) : "", failed ? ")" : "");
	return tmactl_report(t);
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
