/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl top: shows who uses the service, and how much, at an interval: as a page of a terminal, or as a
 * list. */
#include "tmactl.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/tmactl/top/snapshot.h"
#include "proto/clock.h"
#include "client/tmactl/terminal/term.h"
#include "client/tmactl/top/top_print.h"

#define INTERVAL_S     2.0
#define MAX_INTERVAL_S 86400
#define CALL_MS        2000 /* default timeout of a call, so that keys work while the service hangs */

struct top {
	struct tmactl *t;
	double interval;
	long count; /* snapshots to show; 0: no limit */
	enum sort_key key;
	tma_client *client;       /* NULL: the connection is lost and is tried again at the next refresh */
	struct snapshot snapshot; /* latest snapshot; zeros until there is one */
	char note[256];  /* line above the table, such as why the service does not answer; "": none */
	int note_status; /* status of the failure in note; 0: tmactl itself failed */
	bool on_terminal;
};

static int top_parse(struct top *top, int argc, char **argv);
static void top_run(struct top *top);

int cmd_top(struct tmactl *t, int argc, char **argv)
{
	struct top top = { .t = t, .interval = INTERVAL_S };

	if (!top_parse(&top, argc, argv)) {
		top.client = tmactl_connect(t, &t->error);
		if (top.client)
			top_run(&top);
	}
	term_close();
	snapshot_deinit(&top.snapshot);
	tma_free(top.client);
	if (term_stopped() && term_stopped() != SIGINT) {
		signal(term_stopped(), SIG_DFL);
		raise(term_stopped());
	}
	return tmactl_report(t);
}

/* ---- Flags ------------------------------------------------------------------------------------------ */

static int set_interval(struct top *top, const char *text)
{
	char *end;

	top->interval = strtod(text, &end);
	if (end == text || *end || !(top->interval >= 0.1 && top->interval <= MAX_INTERVAL_S))
		return fail(&top->t->error, EXIT_USAGE, "--interval %s: expected seconds, from 0.1 to %d",
		            text, MAX_INTERVAL_S);
	return 0;
}

static int set_count(struct top *top, const char *text)
{
	char *end;

	errno = 0;
	top->count = strtol(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || top->count < 1)
		return fail(&top->t->error, EXIT_USAGE, "--count %s: expected a number, at least 1", text);
	return 0;
}

static int top_set(struct top *top, int opt, const char *text)
{
	int key;

	switch (opt) {
	case OPT_INTERVAL:
		return set_interval(top, text);
	case OPT_COUNT:
		return set_count(top, text);
	case OPT_ONCE:
		top->count = 1;
		return 0;
	case OPT_SORT:
		key = tmactl_word(WORDS_SORT, "--sort", text, &top->t->error);
		if (key >= 0)
			top->key = (enum sort_key)key;
		return key < 0 ? -1 : 0;
	default:
		return -1;
	}
}

static int top_parse(struct top *top, int argc, char **argv)
{
	int opt;

	while ((opt = tmactl_option(top->t, argc, argv)) != -1)
		if (top_set(top, opt, optarg) < 0)
			return -1;
	if (optind < argc)
		return fail(&top->t->error, EXIT_USAGE, "top takes no argument, but was given %s",
		            argv[optind]);
	if (top->t->timeout_ms < 0)
		top->t->timeout_ms = CALL_MS;
	return 0;
}

/* ---- A snapshot ------------------------------------------------------------------------------------- */

static void top_lose(struct top *top, const struct failure *why)
{
	top->note_status = why->status;
	snprintf(top->note, sizeof top->note, "tmad does not answer (%.*s); trying again",
	         (int)strcspn(why->text, "\n"), why->text);
	tma_free(top->client);
	top->client = NULL;
}

/* Takes a new snapshot. If that fails, keeps the previous one, sets the note to the reason and returns
 * false. */
static bool top_refresh(struct top *top)
{
	struct failure why = { 0 };
	struct snapshot snapshot;

	if (!top->client)
		top->client = tmactl_connect(top->t, &why);
	if (!top->client ||
	    snapshot_init(&snapshot, top->client, top->snapshot.info ? &top->snapshot : NULL, &why) < 0) {
		top_lose(top, &why);
		return false;
	}
	top->note[0] = '\0';
	if (top->snapshot.info && !snapshot_is_same_service(&snapshot, &top->snapshot))
		snprintf(top->note, sizeof top->note, "tmad has been restarted");
	snapshot_deinit(&top->snapshot);
	top->snapshot = snapshot;
	return true;
}

/* ---- Pages and lists -------------------------------------------------------------------------------- */

static void show_page(struct top *top)
{
	int columns, lines;
	char *frame = NULL;
	size_t size;
	FILE *file;

	if (!top->snapshot.info)
		return;
	file = open_memstream(&frame, &size);
	term_size(&columns, &lines);
	snapshot_sort(&top->snapshot, top->key);
	if (file) {
		top_print(file, &top->snapshot, top->key, top->note, columns, lines);
		fclose(file);
		term_show(frame);
	}
	free(frame);
}

/* Appends the latest snapshot to standard output. If the service did not answer, prints a line to standard
 * error or, with --json, a document that contains the error. */
static void show_list(struct top *top, bool answered, bool is_first)
{
	if (top->t->json) {
		snapshot_sort(&top->snapshot, top->key);
		top_print_json(answered ? &top->snapshot : NULL, top->note);
	} else if (!answered) {
		fprintf(stderr, "tmactl: %s\n", top->note);
	} else {
		if (!is_first)
			putchar('\n');
		snapshot_sort(&top->snapshot, top->key);
		top_print(stdout, &top->snapshot, top->key, top->note, 0, 0);
	}
	fflush(stdout);
}

/* ---- The loop --------------------------------------------------------------------------------------- */

/* Handles a key. Returns false if the command is to end. Sets *ret_refresh to whether the user asks for a new
 * snapshot. */
static bool on_key(struct top *top, enum term_key what, char key, bool *ret_refresh)
{
	*ret_refresh = false;
	if (what == TERM_STOP || (what == TERM_CHAR && (key == 'q' || key == 'Q')))
		return false;
	if (what == TERM_RIGHT || (what == TERM_CHAR && key == 's'))
		top->key = (top->key + 1) % SORT_COUNT;
	else if (what == TERM_LEFT || (what == TERM_CHAR && key == 'S'))
		top->key = (top->key + SORT_COUNT - 1) % SORT_COUNT;
	else if (what == TERM_CHAR && key == ' ')
		*ret_refresh = true;
	return true;
}

/* Handles keys until the monotonic clock reaches `until`, in seconds, or the user asks for a new snapshot.
 * Returns false if the command is to end. */
static bool wait_on_page(struct top *top, double until)
{
	bool refresh = false;
	char key = 0;

	while (!refresh) {
		double left = until - clock_s();
		enum term_key what;

		if (left <= 0)
			return true;
		what = term_wait((int)(left * 1000) + 1, &key);
		if (!on_key(top, what, key, &refresh))
			return false;
		if (what != TERM_TIMEOUT)
			show_page(top);
	}
	return true;
}

static bool wait_in_list(double until)
{
	double left = until - clock_s();
	struct timespec time;

	if (left <= 0)
		return true;
	time = (struct timespec){ (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };
	nanosleep(&time, NULL);
	return true;
}

static void top_run(struct top *top)
{
	bool answered = top_refresh(top), is_first = true;

	if (!answered) {
		fail_status(&top->t->error, top->note_status);
		fail(&top->t->error, EXIT_FAILED, "%s", top->note);
		return;
	}
	/* A single snapshot is printed as a list, because a page would disappear at once. */
	top->on_terminal = !top->t->json && top->count != 1 && term_open() == 0;
	for (long n = 1;; n++) {
		double until = clock_s() + top->interval;

		if (top->on_terminal)
			show_page(top);
		else
			show_list(top, answered, is_first);
		is_first = false;
		if (n == top->count || ferror(stdout))
			return;
		if (!(top->on_terminal ? wait_on_page(top, until) : wait_in_list(until)))
			return;
		answered = top_refresh(top);
	}
}
