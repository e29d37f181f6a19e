/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl explain: shows how the service would move a tensor, and what rules out a faster way. */
#include "tmactl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "args.h"
#include "client/tmactl/terminal/colour.h"
#include "field.h"
#include "client/tmactl/explain/cast_words.h"
#include "client/tmactl/explain/conversion.h"
#include "client/tmactl/explain/hint.h"
#include "client/tmactl/npy/npy.h"
#include "client/tmactl/explain/picture.h"
#include "client/tmactl/terminal/print.h"
#include "transform_request.h"
#include "client/tmactl/npy/source.h"
#include "client/tmactl/explain/timing.h"
#include "client/tmactl/explain/words.h"

#define WORDS_COLUMN 9 /* column at which the text of each answer line begins */

struct explain {
	struct tmactl *t;
	struct view_args args;
	struct tma_number value;
	const char *value_text; /* text of --value; NULL: not given, so the value is 0 */
	const char *dtype_text; /* text of --dtype, whose meaning depends on path; NULL: not given */
	struct type_arg from;   /* source type, if options give it */
	const char *shape_text; /* text of --shape; NULL: not given */
	const char *engine;     /* --engine; NULL: the engine of the service */
	const char *svg;        /* file to draw into; NULL: none */
	const char *path;       /* file that holds the array; NULL: options describe it */
	struct npy npy;         /* header of that file, or built from type and shape */
	struct conversion conversion;
	struct cast_args cast_args;
	struct cast cast;
};

static int explain_parse(struct explain *e, int argc, char **argv);
static int explain_read(struct explain *e, const char *path);
static void explain_ask(struct explain *e);
static void explain_print(const struct explain *e, const struct transform_request *q,
                          const tma_document *plan, const struct hint *hint);

int cmd_explain(struct tmactl *t, int argc, char **argv)
{
	struct explain e = { .t = t };

	t->may_be_alone = true;
	if (!explain_parse(&e, argc, argv))
		explain_ask(&e);
	npy_deinit(&e.npy);
	cast_args_deinit(&e.cast_args);
	return tmactl_report(t);
}

/* ---- Flags ------------------------------------------------------------------------------------------ */

static int explain_set(struct explain *e, int opt, const char *text)
{
	struct failure *f = &e->t->error;
	enum tma_dtype ignored;

	switch (opt) {
	case OPT_DTYPE:
		e->dtype_text = text;
		return args_dtype(&ignored, "--dtype", text, f);
	case OPT_FROM_DTYPE:
		return args_type(&e->from, "from-dtype", "the array", text, f);
	case OPT_SHAPE:
		e->shape_text = text;
		return args_shape(e->npy.shape, &e->npy.rank, text, f);
	case OPT_PERMUTE:
		return args_permute(&e->args, text, f);
	case OPT_PAD:
		return args_pad(&e->args, text, f);
	case OPT_SPLIT:
		return args_split(&e->args, text, f);
	case OPT_JOIN:
		return args_join(&e->args, text, f);
	case OPT_VALUE:
		e->value_text = text;
		return args_value(&e->value, text, f);
	case OPT_MODE:
		return args_mode(&e->args, text, f);
	case OPT_ENGINE:
		e->engine = text;
		return tmactl_word(WORDS_ENGINE, "--engine", text, f) < 0 ? -1 : 0;
	case OPT_SVG:
		e->svg = text;
		return 0;
	case OPT_TO_DTYPE:
	case OPT_CAST:
	case OPT_SCALE:
	case OPT_BIAS:
	case OPT_MEAN:
	case OPT_STD:
	case OPT_CHANNEL_AXIS:
	case OPT_AMAX_BLOCK:
	case OPT_POWER_OF_TWO:
	case OPT_LEAST:
	case OPT_SCALE_DTYPE:
		return cast_args_set(&e->cast_args, opt, cmd_option_name(e->t->cmd->rows, opt), text, f);
	default:
		return conversion_set(&e->conversion, opt, text, f);
	}
}

/* Returns an option that was given and cannot be combined with named layouts, or NULL if there is none. A
 * conversion between layouts takes only --dtype and, if a layout is of blocked tensors, --shape. */
static const char *explain_array(const struct explain *e)
{
	if (e->shape_text && !conversion_is_blocked(&e->conversion))
		return "--shape";
	return e->args.permute ? "--permute"
	       : e->args.pad   ? "--pad"
	       : e->args.split ? "--split"
	       : e->args.join  ? "--join"
	                       : NULL;
}

/* Returns whether --to names a blocked layout. The last block may be incomplete then, and --value fills
 * it. */
static bool explain_fills(const struct explain *e)
{
	return conversion_is_blocked(&e->conversion) && e->conversion.dst.layout;
}

/* Interprets --dtype: it is the type of an array that options describe, but beside a file it is the type of
 * the output, as in tmactl copy. */
static int explain_types(struct explain *e)
{
	struct failure *f = &e->t->error;

	if (e->path && e->dtype_text &&
	    cast_args_set(&e->cast_args, OPT_OUTPUT_DTYPE, "dtype", e->dtype_text, f) < 0)
		return -1;
	if (!e->path && e->dtype_text && args_type(&e->from, "dtype", "the array", e->dtype_text, f) < 0)
		return -1;
	if (e->path && e->from.name && !e->cast_args.given)
		return cast_nothing(e->from.dtype, f);
	return 0;
}

static int explain_parse(struct explain *e, int argc, char **argv)
{
	struct failure *f = &e->t->error;
	int opt;

	while ((opt = tmactl_option(e->t, argc, argv)) != -1)
		if (explain_set(e, opt, optarg) != 0)
			return -1;
	e->path = argc > optind ? argv[optind] : NULL;
	if (explain_types(e) < 0)
		return -1;
	if (args_check(&e->args, explain_fills(e) ? NULL : e->value_text, f) < 0 ||
	    cast_args_check(&e->cast_args, f) < 0)
		return -1;
	if (argc - optind > 1)
		return fail(f, EXIT_USAGE, "explain takes one file at most, but was given %s too",
		            argv[optind + 1]);
	if (e->conversion.given && (argc > optind || explain_array(e)))
		return fail(f, EXIT_USAGE, "--%s: a conversion is described by layouts and sizes; omit %s",
		            e->conversion.given, argc > optind ? argv[optind] : explain_array(e));
	if (e->conversion.given && e->cast_args.given)
		return fail(f, EXIT_USAGE,
		            "--%s: layouts are explained without a conversion of elements; omit --%s",
		            e->conversion.given, e->cast_args.given);
	if (e->conversion.given)
		return e->from.name && e->shape_text ? transform_request_shape(&e->npy, e->from.dtype, f) : 0;
	if (e->path && e->shape_text)
		return fail(f, EXIT_USAGE, "--shape %s: the shape is that of %s; omit one", e->shape_text,
		            e->path);
	if (e->path)
		return explain_read(e, e->path);
	if (!e->from.name || !e->shape_text)
		return fail(f, EXIT_USAGE,
		            "explain needs --from-dtype and --shape, or a file to take them from");
	return transform_request_shape(&e->npy, e->from.dtype, f);
}

static int explain_read(struct explain *e, const char *path)
{
	struct failure *f = &e->t->error;
	struct source source;
	int rc = source_open(&source, path, NULL, f);

	if (!rc)
		rc = npy_read(&e->npy, &source, f);
	source_close(&source);
	return rc;
}

/* ---- The transform request
 * ----------------------------------------------------------------------------------- */

static int explain_draw(const struct explain *e, const struct transform_request *q, const tma_document *plan)
{
	FILE *file = fopen(e->svg, "we");
	bool failed;

	if (file) {
		picture_draw(file, q, plan);
		failed = ferror(file);
		failed |= fclose(file) != 0;
		if (!failed)
			return 0;
	}
	return fail(&e->t->error, EXIT_FAILED, "--svg %s: cannot be written (%s)", e->svg, strerror(errno));
}

/* Looks for a hint at how to make the transform faster. There is none for named layouts, conversions and
 * splits. There is none either for a file whose items are not of one of the service's types: the innermost
 * dimension may then be the elements of one item, and cannot be made longer. */
static int explain_hint(struct explain *e, tma_client *client, const struct transform_request *q,
                        const tma_document *plan, struct hint *ret)
{
	bool is_file = e->path;

	*ret = (struct hint){ 0 };
	if (e->conversion.given || e->cast.is || (is_file && e->npy.descr.dtype < 0) || q->src.n_split ||
	    q->dst.n_split)
		return 0;
	return hint_find(ret, client, q, e->engine, plan, !is_file, &e->t->error);
}

static void explain_answer(struct explain *e, tma_client *client, const struct transform_request *q,
                           const tma_document *plan)
{
	struct hint hint;

	if (e->svg && explain_draw(e, q, plan) < 0)
		return;
	if (e->t->json)
		tmactl_print_json(e->t, plan);
	else if (explain_hint(e, client, q, plan, &hint) == 0 && !e->t->quiet)
		explain_print(e, q, plan, &hint);
}

static int explain_cast(struct explain *e)
{
	enum tma_dtype from = e->from.dtype;

	if (!e->cast_args.given)
		return 0;
	if (e->path && cast_source(&e->npy.descr, e->from.name ? &e->from.dtype : NULL, e->path, &from,
	                           &e->t->error) < 0)
		return -1;
	cast_init(&e->cast, &e->cast_args, from, &e->args);
	return 0;
}

static int explain_request(struct explain *e, struct transform_request *ret)
{
	const enum tma_dtype *dtype = e->from.name ? &e->from.dtype : NULL;

	if (!e->conversion.given && explain_cast(e) < 0)
		return -1;
	if (!e->conversion.given)
		return transform_request_init(ret, &e->npy, dtype, &e->args, &e->cast, &e->value,
		                              &e->t->error);
	if (conversion_init(&e->conversion, dtype, e->shape_text ? &e->npy : NULL, ret, &e->t->error) < 0)
		return -1;
	ret->transform.value = e->value;
	return 0;
}

static void explain_ask(struct explain *e)
{
	tma_document *plan = NULL;
	tma_client *client;
	struct transform_request q;

	if (explain_request(e, &q) < 0)
		return;
	client = tmactl_connect(e->t, &e->t->error);
	if (client && tma_explain_for(client, &q.transform, e->engine, &plan) < 0)
		tmactl_refused(client, &e->t->error);
	else if (plan)
		explain_answer(e, client, &q, plan);
	tma_document_free(plan);
	tma_free(client);
}

/* ---- The answer ------------------------------------------------------------------------------------- */

static void print_line(const tma_document *plan, const char *key, const char *label)
{
	const tma_document *value = tma_document_find(plan, key);

	if (!value)
		return;
	printf("%-8s ", label);
	print_value(value);
	putchar('\n');
}

static void print_family(const tma_document *plan)
{
	const tma_document *tile = tma_document_find(plan, "tile");
	const char *swizzle = field_text(plan, "swizzle");
	bool fast = words_is_fast(plan);

	printf("%-8s %s%s%s (engine %s", "family", colour(fast ? COLOUR_GOOD : COLOUR_BAD),
	       field_text(plan, "family"), colour(COLOUR_NONE), field_text(plan, "engine"));
	if (tma_document_find(plan, "method"))
		printf(", method %s", field_text(plan, "method"));
	for (size_t i = 0; i < tma_document_count(tile); i++)
		printf("%s%" PRId64, i ? "x" : ", tile ", tma_document_int(tma_document_at(tile, i, NULL)));
	if (strcmp(swizzle, "none") != 0)
		printf(", swizzle %s", swizzle);
	puts(")");
	print_wrapped(words_of_family(plan), WORDS_COLUMN, printf("%-8s ", "means"));
	print_wrapped(words_of_speed(plan), WORDS_COLUMN, printf("%-8s ", "fast"));
}

static void print_timing(const tma_document *plan)
{
	char text[TIMING_SIZE];

	if (*timing_text(plan, text))
		print_wrapped(text, WORDS_COLUMN, printf("%-8s ", "time"));
}

static void explain_print(const struct explain *e, const struct transform_request *q,
                          const tma_document *plan, const struct hint *hint)
{
	const tma_document *rules = tma_document_find(plan, "rules");
	char bytes[32];

	if (e->conversion.given)
		conversion_print(&e->conversion, "convert  ");
	cast_print(&e->cast, q, WORDS_COLUMN);
	print_family(plan);
	for (size_t i = 0; i < tma_document_count(rules); i++) {
		const tma_document *rule = tma_document_at(rules, i, NULL);

		printf("%s%-8s%s %s: %s\n", colour(COLOUR_DIM), "not", colour(COLOUR_NONE),
		       field_text(rule, "family"), field_text(rule, "rule"));
	}
	if (*hint->text) {
		printf("%s", colour(COLOUR_HINT));
		print_wrapped(hint->text, WORDS_COLUMN, printf("%-8s ", "hint"));
		printf("%s", colour(COLOUR_NONE));
	}
	printf(
	    "%-8s %s read + written\n", "moves",
	    print_bytes((uint64_t)tma_document_int(tma_document_find(plan, "bytes")), bytes, sizeof bytes));
	print_timing(plan);
	print_line(plan, "shape", "shape");
	print_line(plan, "dst_strides", "dst");
	print_line(plan, "src_strides", "src");
	print_line(plan, "element", "element");
	print_line(plan, "slabs", "slabs");
	print_line(plan, "parts", "parts");
	print_line(plan, "grid", "grid");
}
