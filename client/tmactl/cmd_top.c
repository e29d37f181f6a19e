/* tmactl top: who uses the service, and how much, again and again. */
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
#define CALL_MS        2000 /* a service that stands still does not keep keys from being heard */

struct top {
	struct tmactl *t;
	double interval;
	long count; /* looks; 0: until it is stopped */
	enum sort_key key;
	tma_client *client; /* NULL: the service is gone */
	struct look look;   /* the last one; zeros: none */
	char note[256];
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
	look_deinit(&top.look);
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

/* ---- A look ----------------------------------------------------------------------------------------- */

static void top_lose(struct top *top, const struct failure *why)
{
	snprintf(top->note, sizeof top->note, "tmad does not answer (%.*s); trying again",
	         (int)strcspn(why->text, "\n"), why->text);
	tma_free(top->client);
	top->client = NULL;
}

/* What went wrong is the note; the last look stays then. */
static bool top_look(struct top *top)
{
	struct failure why = { 0 };
	struct look look;

	if (!top->client)
		top->client = tmactl_connect(top->t, &why);
	if (!top->client || look_init(&look, top->client, top->look.info ? &top->look : NULL, &why) < 0) {
		top_lose(top, &why);
		return false;
	}
	top->note[0] = '\0';
	if (top->look.info && !look_is_same_run(&look, &top->look))
		snprintf(top->note, sizeof top->note, "tmad has been restarted");
	look_deinit(&top->look);
	top->look = look;
	return true;
}

/* ---- Pages and lists -------------------------------------------------------------------------------- */

static void show_page(struct top *top)
{
	int columns, lines;
	char *frame = NULL;
	size_t size;
	FILE *file;

	if (!top->look.info)
		return;
	file = open_memstream(&frame, &size);
	term_size(&columns, &lines);
	look_sort(&top->look, top->key);
	if (file) {
		top_print(file, &top->look, top->key, top->note, columns, lines);
		fclose(file);
		term_show(frame);
	}
	free(frame);
}

/* A look that failed is a line of standard error, or a document. */
static void show_list(struct top *top, bool answered, bool is_first)
{
	if (top->t->json) {
		look_sort(&top->look, top->key);
		top_print_json(answered ? &top->look : NULL, top->note);
	} else if (!answered) {
		fprintf(stderr, "tmactl: %s\n", top->note);
	} else {
		if (!is_first)
			putchar('\n');
		look_sort(&top->look, top->key);
		top_print(stdout, &top->look, top->key, top->note, 0, 0);
	}
	fflush(stdout);
}

/* ---- The loop --------------------------------------------------------------------------------------- */

/* False: it is to end. True, with *ret_look: it is time to look. */
static bool on_key(struct top *top, enum term_key what, char key, bool *ret_look)
{
	*ret_look = false;
	if (what == TERM_STOP || (what == TERM_CHAR && (key == 'q' || key == 'Q')))
		return false;
	if (what == TERM_RIGHT || (what == TERM_CHAR && key == 's'))
		top->key = (top->key + 1) % SORT_COUNT;
	else if (what == TERM_LEFT || (what == TERM_CHAR && key == 'S'))
		top->key = (top->key + SORT_COUNT - 1) % SORT_COUNT;
	else if (what == TERM_CHAR && key == ' ')
		*ret_look = true;
	return true;
}

/* Until the time or somebody asks for the next look; false: it is to end. */
static bool wait_on_page(struct top *top, double until)
{
	bool look = false;
	char key = 0;

	while (!look) {
		double left = until - clock_s();
		enum term_key what;

		if (left <= 0)
			return true;
		what = term_wait((int)(left * 1000) + 1, &key);
		if (!on_key(top, what, key, &look))
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
	bool answered = top_look(top), is_first = true;

	if (!answered) {
		fail(&top->t->error, EXIT_FAILED, "%s", top->note);
		return;
	}
	/* One look needs no page, which would be gone at once. */
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
		answered = top_look(top);
	}
}
