/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl bench: measures how many requests per second the service answers, and their latency. */
#include "tmactl.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "client/tmactl/bench/load.h"
#include "client/tmactl/bench/load_report.h"
#include "client/tmactl/terminal/print.h"
#include "client/tmactl/terminal/progress.h"
#include "transform_request.h"

#define MAX_CONNECTIONS 4096
#define MAX_DEPTH       4096
#define MAX_SECONDS     3600
#define SECONDS         5     /* default of --duration */
#define CALL_MS         10000 /* default timeout of a call, so that a hanging service ends the run */

/* The kinds of requests, in the order of WORDS(LOAD) in commands.def. */
enum kind { KIND_PING, KIND_COPY, KIND_TRANSPOSE, KIND_TRANSFORM };

struct bench {
	struct tmactl *t;
	enum kind kind;
	struct load load;
	struct tma_order order;
	const char *share;  /* last option of the group share that was given, without dashes; NULL: none */
	const char *device; /* last of --src-device and --dst-device, without dashes; NULL: neither */
	double seconds;     /* --duration; 0: not given */
	uint64_t size;      /* bytes of the source; 0: not given */
	const char *layout; /* last option that is for transforms only, without dashes; NULL: none */
	bool has_shape;
	struct type_arg type; /* element type of the source */
	struct view_args args;
	struct cast_args cast_args;
	struct cast cast;
	struct tma_number value;
	const char *value_text; /* text of --value; NULL: not given, so the value is 0 */
	struct npy npy;
	struct transform_request request;
	struct load_result result;
	struct progress progress;
};

static volatile sig_atomic_t caught;

static int bench_parse(struct bench *b, int argc, char **argv);
static int bench_request(struct bench *b);
static int bench_run(struct bench *b);

static void on_signal(int sig)
{
	caught = sig;
}

int cmd_bench(struct tmactl *t, int argc, char **argv)
{
	struct bench *b = calloc(1, sizeof *b);

	if (!b) {
		fail(&t->error, EXIT_FAILED, "out of memory");
		return tmactl_report(t);
	}
	t->may_be_alone = true;
	b->t = t;
	b->type.dtype = TMA_FLOAT32;
	b->load = (struct load){ .connections = 1, .depth = 1, .requests = UINT64_MAX, .stop = &caught };
	if (!bench_parse(b, argc, argv) && !bench_request(b))
		bench_run(b);
	cast_args_deinit(&b->cast_args);
	free(b);
	return tmactl_report(t);
}

/* ---- Flags ------------------------------------------------------------------------------------------ */

static int set_count(struct bench *b, uint64_t *ret, const char *flag, const char *text, uint64_t max)
{
	char *end;

	*ret = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || !*ret || *ret > max)
		return fail(&b->t->error, EXIT_USAGE, "%s %s: expected a number from 1 to %" PRIu64, flag,
		            text, max);
	return 0;
}

static int set_number(struct bench *b, uint32_t *ret, const char *flag, const char *text, uint32_t max)
{
	uint64_t value = 0;
	int rc = set_count(b, &value, flag, text, max);

	*ret = (uint32_t)value;
	return rc;
}

static int set_kind(struct bench *b, const char *text)
{
	int kind = tmactl_word(WORDS_LOAD, "--kind", text, &b->t->error);

	if (kind >= 0)
		b->kind = (enum kind)kind;
	return kind < 0 ? -1 : 0;
}

static int set_duration(struct bench *b, const char *text)
{
	char *end;

	b->seconds = strtod(text, &end);
	if (end == text || *end || !(b->seconds > 0 && b->seconds <= MAX_SECONDS))
		return fail(&b->t->error, EXIT_USAGE,
		            "--duration %s: expected seconds, more than 0 and at most %d", text, MAX_SECONDS);
	return 0;
}

static int set_size(struct bench *b, const char *text)
{
	if (args_bytes(&b->size, "--size", text, &b->t->error) < 0)
		return -1;
	if (!b->size || b->size % 4 || b->size > INT64_MAX / 32)
		return fail(&b->t->error, EXIT_USAGE, "--size %s: expected a multiple of 4, at least 4",
		            text);
	return 0;
}

static int bench_set_layout(struct bench *b, int opt, const char *text)
{
	struct failure *f = &b->t->error;

	b->layout = cmd_option_name(b->t->cmd->rows, opt);
	switch (opt) {
	case OPT_DTYPE:
	case OPT_FROM_DTYPE:
		return args_type(&b->type, b->layout, "the array", text, f);
	case OPT_SHAPE:
		b->has_shape = true;
		return args_shape(b->npy.shape, &b->npy.rank, text, f);
	case OPT_PERMUTE:
		return args_permute(&b->args, text, f);
	case OPT_PAD:
		return args_pad(&b->args, text, f);
	case OPT_SPLIT:
		return args_split(&b->args, text, f);
	case OPT_JOIN:
		return args_join(&b->args, text, f);
	case OPT_VALUE:
		b->value_text = text;
		return args_value(&b->value, text, f);
	case OPT_MODE:
		return args_mode(&b->args, text, f);
	default:
		return cast_args_set(&b->cast_args, opt, b->layout, text, f);
	}
}

static int bench_set(struct bench *b, int opt, const char *text)
{
	switch (opt) {
	case OPT_KIND:
		return set_kind(b, text);
	case OPT_CONNECTIONS:
		return set_number(b, &b->load.connections, "--connections", text, MAX_CONNECTIONS);
	case OPT_PIPELINE:
		return set_number(b, &b->load.depth, "--pipeline", text, MAX_DEPTH);
	case OPT_DURATION:
		return set_duration(b, text);
	case OPT_REQUESTS:
		return set_count(b, &b->load.requests, "--requests", text, UINT64_MAX - 1);
	case OPT_PREPARED:
		b->load.is_prepared = true;
		return 0;
	case OPT_PRIORITY:
	case OPT_MULTIPROCESSORS:
	case OPT_HOST_THREADS:
		b->share = cmd_option_name(b->t->cmd->rows, opt);
		b->load.order = &b->order;
		return args_share(&b->order, b->share, text, &b->t->error);
	case OPT_SIZE:
		return set_size(b, text);
	case OPT_SRC_DEVICE:
		b->device = "src-device";
		b->load.src_device = text;
		return 0;
	case OPT_DST_DEVICE:
		b->device = "dst-device";
		b->load.dst_device = text;
		return 0;
	default:
		return bench_set_layout(b, opt, text);
	}
}

static int bench_parse(struct bench *b, int argc, char **argv)
{
	struct failure *f = &b->t->error;
	bool sized, shaped;
	int opt;

	while ((opt = tmactl_option(b->t, argc, argv)) != -1)
		if (bench_set(b, opt, optarg) < 0)
			return -1;
	if (optind < argc)
		return fail(f, EXIT_USAGE, "bench takes no argument, but was given %s", argv[optind]);
	sized = b->kind == KIND_COPY || b->kind == KIND_TRANSPOSE;
	shaped = b->kind == KIND_TRANSFORM;
	if (b->size && !sized)
		return fail(f, EXIT_USAGE, "--size belongs to --kind copy and transpose, not to %s",
		            cmd_word(WORDS_LOAD, b->kind));
	if (b->load.is_prepared && b->kind == KIND_PING)
		return fail(f, EXIT_USAGE,
		            "--prepared belongs to --kind copy, transpose and transform, not to ping");
	if ((b->share || b->device) && b->kind == KIND_PING)
		return fail(f, EXIT_USAGE,
		            "--%s belongs to --kind copy, transpose and transform, not to ping",
		            b->share ? b->share : b->device);
	if (b->layout && !shaped)
		return fail(f, EXIT_USAGE, "--%s belongs to --kind transform, not to %s", b->layout,
		            cmd_word(WORDS_LOAD, b->kind));
	if (shaped && !b->has_shape)
		return fail(f, EXIT_USAGE, "--kind transform needs --shape");
	if (args_check(&b->args, b->value_text, f) < 0 || cast_args_check(&b->cast_args, f) < 0)
		return -1;
	if (b->cast_args.scale.n > 1 || b->cast_args.bias.n > 1)
		return fail(f, EXIT_USAGE, "bench converts by numbers, not by lists");
	/* If --requests is given without --duration, that number ends the run. The time limit is then the
	 * longest that is allowed. */
	if (!(b->seconds > 0))
		b->seconds = b->load.requests == UINT64_MAX ? SECONDS : MAX_SECONDS;
	b->load.duration_ns = (uint64_t)(b->seconds * 1e9);
	if (b->t->timeout_ms < 0)
		b->t->timeout_ms = CALL_MS;
	return 0;
}

/* Returns the greatest divisor of n that is no greater than its square root, which makes the rows of a matrix
 * as square as n allows. */
static int64_t near_root(int64_t n)
{
	int64_t root = (int64_t)sqrt((double)n);

	while (root > 1 && n % root)
		root--;
	return root ? root : 1;
}

/* Builds the request from the options: a copy moves bytes, a transpose a matrix of 4-byte elements. A ping
 * has none. */
static int bench_request(struct bench *b)
{
	int64_t size = b->size ? (int64_t)b->size : 65536;

	if (b->kind == KIND_PING)
		return 0;
	b->load.request = &b->request;
	if (b->kind == KIND_COPY) {
		b->type.dtype = TMA_UINT8;
		b->npy.rank = 1;
		b->npy.shape[0] = size;
	} else if (b->kind == KIND_TRANSPOSE) {
		b->npy.rank = 2;
		b->npy.shape[0] = near_root(size / 4);
		b->npy.shape[1] = size / 4 / b->npy.shape[0];
		args_permute(&b->args, "1,0", &b->t->error);
	}
	if (transform_request_shape(&b->npy, b->type.dtype, &b->t->error) < 0)
		return -1;
	cast_init(&b->cast, &b->cast_args, b->type.dtype, &b->args);
	return transform_request_init(&b->request, &b->npy, &b->type.dtype, &b->args, &b->cast, &b->value,
	                              &b->t->error);
}

/* ---- The run ---------------------------------------------------------------------------------------- */

static void bench_progress(void *arg, const struct load_result *result, double done)
{
	struct bench *b = arg;
	char what[64], rate[40];

	if (!progress_is_due(&b->progress))
		return;
	snprintf(what, sizeof what, "bench %s", cmd_word(WORDS_LOAD, b->kind));
	print_count((uint64_t)((double)result->latency.count / progress_seconds(&b->progress)), rate,
	            sizeof rate - 6);
	strcat(rate, " req/s");
	progress_show(&b->progress, what, done, rate);
}

/* Runs the load and prints what was measured, also if it was stopped early or failed after the first answer.
 * Refused requests are counted, and make the command fail. */
static int bench_run(struct bench *b)
{
	struct sigaction action = { .sa_handler = on_signal };
	uint64_t failed = 0;
	int rc;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	progress_init(&b->progress, b->t->quiet || b->t->json);
	b->load.progress = bench_progress;
	b->load.progress_arg = b;
	rc = load_run(&b->load, b->t, &b->result, &b->t->error);
	progress_clear(&b->progress);
	if (!b->result.latency.count)
		return rc;
	for (int i = 0; i < LOAD_STATUSES; i++)
		failed += b->result.failed[i];
	if (!rc && failed)
		rc = fail(&b->t->error, EXIT_FAILED, "%" PRIu64 " of %" PRIu64 " request%s refused", failed,
		          b->result.latency.count, b->result.latency.count == 1 ? " was" : "s were");
	if (b->t->json)
		load_report_json(&b->load, cmd_word(WORDS_LOAD, b->kind), &b->result,
		                 rc ? &b->t->error : NULL);
	else if (!b->t->quiet)
		load_report(&b->load, cmd_word(WORDS_LOAD, b->kind), &b->result);
	b->t->has_said = b->t->json;
	return rc;
}
