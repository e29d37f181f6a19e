/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl copy: copies an .npy file or stream into another, permuted, converted, padded or cropped. The
 * outputs appear only once they are complete; mover.h moves the data. */
#include "tmactl.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "client/tmactl/copy/mover.h"
#include "client/tmactl/npy/archive.h"
#include "client/tmactl/npy/literal.h"
#include "client/tmactl/npy/npy.h"
#include "client/tmactl/npy/output.h"
#include "client/tmactl/terminal/print.h"
#include "client/tmactl/terminal/progress.h"
#include "client/tmactl/npy/source.h"
#include "stop.h"
#include "client/tmactl/copy/view.h"

struct copy {
	struct tmactl *t;
	struct view_args args;
	struct cast_args cast_args;
	struct type_arg from;
	const char *value_text; /* text of --value; NULL: not given, so the value is 0 */
	struct tma_number value;
	uint64_t memory;        /* bytes for data in flight, less what spooling the scales takes */
	struct tma_order order; /* priority and limits of the requests */
	const char *src_path;
	const char *dst_path;
	const char *scale_path; /* file for the scales; NULL: none are computed */

	enum output_clobber clobber;
	struct source source;
	struct npy npy;
	struct cast cast;
	struct view view;
	struct npy dst; /* item type of the output; descr_text is borrowed from npy or dst_text */
	char dst_text[DESCR_TEXT];
	uint8_t fill[16]; /* --value encoded as one item */
	char *header;
	size_t header_bytes;
	struct output output;
	char *scale_header;
	size_t scale_header_bytes;
	struct output scale_output;
	struct progress progress;
	struct mover_result result;
};

static atomic_int caught; /* signal that asks the command to stop, set by its handler; 0: none */
static struct stop stop = { .caught = &caught };

static int copy_parse(struct copy *c, int argc, char **argv);
static int copy_open(struct copy *c);
static int copy_run(struct copy *c);
static int copy_progress(void *arg, double done, struct failure *f);
static void copy_print(struct copy *c);
static void copy_deinit(struct copy *c);

/* Returns whether the array or its scales go to standard output. Searches argv before it is parsed, because
 * even a command line that is refused must not print messages where an array is expected. Skips the first
 * operand, SRC, for which "-" is standard input. */
static bool copy_takes_stdout(const struct tmactl *t, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (i != t->operands && output_is_standard(argv[i]))
			return true;
	return false;
}

static void on_signal(int sig)
{
	atomic_store(&caught, sig);
}

int cmd_copy(struct tmactl *t, int argc, char **argv)
{
	static const int stops[] = { SIGINT, SIGTERM, SIGHUP };
	struct copy c = { .t = t,
		          .source = { .fd = -1 },
		          .output = { .fd = -1, .stream = -1 },
		          .scale_output = { .fd = -1, .stream = -1 },
		          .memory = 256 * 1024 * 1024 };
	struct sigaction action = { .sa_handler = on_signal };
	int rc;

	t->may_be_alone = true;
	for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
		struct sigaction old;

		/* A signal that is ignored, as by nohup, stays ignored. */
		if (!sigaction(stops[i], NULL, &old) && old.sa_handler != SIG_IGN)
			sigaction(stops[i], &action, NULL);
	}
	t->stdout_is_taken = copy_takes_stdout(t, argc, argv);
	signal(SIGXFSZ, SIG_IGN); /* A write beyond RLIMIT_FSIZE then fails with EFBIG, which is reported. */
	rc = copy_parse(&c, argc, argv);
	progress_init(&c.progress, t->quiet || t->json);
	if (!rc)
		rc = copy_open(&c);
	if (!rc)
		rc = copy_run(&c);
	if (!rc)
		copy_print(&c);
	copy_deinit(&c);
	if (rc && atomic_load(&caught)) {
		signal(atomic_load(&caught), SIG_DFL);
		raise(atomic_load(&caught));
	}
	return tmactl_report(t);
}

/* ---- Flags ------------------------------------------------------------------------------------------ */

static int copy_set(struct copy *c, int opt, const char *text)
{
	struct failure *f = &c->t->error;

	switch (opt) {
	case OPT_PERMUTE:
		return args_permute(&c->args, text, f);
	case OPT_PAD:
		return args_pad(&c->args, text, f);
	case OPT_SPLIT:
		return args_split(&c->args, text, f);
	case OPT_JOIN:
		return args_join(&c->args, text, f);
	case OPT_MODE:
		return args_mode(&c->args, text, f);
	case OPT_VALUE:
		c->value_text = text;
		return args_value(&c->value, text, f);
	case OPT_PRIORITY:
	case OPT_MULTIPROCESSORS:
	case OPT_HOST_THREADS:
		return args_share(&c->order, cmd_option_name(c->t->cmd->rows, opt), text, f);
	case OPT_NO_CLOBBER:
		c->clobber = OUTPUT_NO_CLOBBER;
		return 0;
	case OPT_MEMORY:
		if (args_bytes(&c->memory, "--memory", text, f) < 0)
			return -1;
		if (c->memory < MOVER_MIN_MEMORY)
			return fail(f, EXIT_USAGE, "--memory %s: at least %dM is needed", text,
			            MOVER_MIN_MEMORY >> 20);
		return 0;
	case OPT_SCALE_OUTPUT:
		c->scale_path = text;
		c->t->stdout_is_taken |= output_is_standard(text);
		return 0;
	case OPT_FROM_DTYPE:
		return args_type(&c->from, "from-dtype", "the input", text, f);
	default:
		return cast_args_set(&c->cast_args, opt, cmd_option_name(c->t->cmd->rows, opt), text, f);
	}
}

/* Refuses an output named like an archive or an array in one (y.npz, y.npz:x), because only .npy is
 * written. */
static int copy_check_outputs(const struct copy *c)
{
	const char *const paths[] = { c->dst_path, c->scale_path };

	for (int i = 0; i < 2; i++)
		if (paths[i] && archive_is_named(paths[i]))
			return fail(&c->t->error, EXIT_USAGE,
			            "%s%s: an .npz archive or an array in one, which is only read; write an "
			            ".npy file, and numpy.savez makes an archive of it",
			            i ? "--scale-output " : "", paths[i]);
	return 0;
}

/* Checks that --amax-block and --scale-output are given together, and that the scales do not go to DST. */
static int copy_check_scales(struct copy *c)
{
	const char *block = c->cast_args.amax.block_text;
	struct failure *f = &c->t->error;

	if (c->scale_path && !block)
		return fail(f, EXIT_USAGE,
		            "--scale-output %s: no scales are computed; --amax-block says for which blocks",
		            c->scale_path);
	if (block && !c->scale_path)
		return fail(f, EXIT_USAGE,
		            "--amax-block %s: --scale-output is missing, the file that scales are written to",
		            block);
	if (block && output_is_one(c->dst_path, c->scale_path))
		return fail(f, EXIT_USAGE, "--scale-output %s: it is DST, too", c->scale_path);
	return 0;
}

static int copy_parse(struct copy *c, int argc, char **argv)
{
	int opt;

	while ((opt = tmactl_option(c->t, argc, argv)) != -1)
		if (copy_set(c, opt, optarg) < 0)
			return -1;
	if (argc - optind != 2)
		return fail(&c->t->error, EXIT_USAGE,
		            argc - optind < 2 ? "copy needs two files: SRC and DST"
		                              : "copy takes two files: SRC and DST");
	c->src_path = argv[optind];
	c->dst_path = argv[optind + 1];
	if (c->from.name && !c->cast_args.given)
		return cast_nothing(c->from.dtype, &c->t->error);
	if (args_check(&c->args, c->value_text, &c->t->error) < 0 ||
	    cast_args_check(&c->cast_args, &c->t->error) < 0 || copy_check_outputs(c) < 0)
		return -1;
	return copy_check_scales(c);
}

/* ---- Files ------------------------------------------------------------------------------------------ */

/* Decides how elements are converted and which type the output's header names. */
static int copy_cast(struct copy *c)
{
	enum tma_dtype from;

	c->dst = c->npy;
	if (!c->cast_args.given)
		return 0;
	if (cast_source(&c->npy.descr, c->from.name ? &c->from.dtype : NULL, c->src_path, &from,
	                &c->t->error) < 0)
		return -1;
	cast_init(&c->cast, &c->cast_args, from, &c->args);
	c->dst.descr.dtype = (int)from; /* --value is encoded as this type. */
	if (!c->cast.is)
		return 0;
	descr_of(&c->dst.descr, c->cast.to, c->dst_text);
	c->dst.descr_text = c->dst_text;
	c->dst.descr_len = strlen(c->dst_text);
	c->dst.utf8 = false;
	return 0;
}

static int copy_format_scales(struct copy *c)
{
	struct npy scales = { 0 };
	char text[DESCR_TEXT];

	descr_of(&scales.descr, c->cast_args.amax.dtype, text);
	scales.descr_text = text;
	scales.descr_len = strlen(text);
	return npy_format(&scales, c->view.out_rank, c->view.scale_shape, &c->scale_header,
	                  &c->scale_header_bytes, &c->t->error);
}

static int copy_open(struct copy *c)
{
	struct failure *f = &c->t->error;

	if (source_open(&c->source, c->src_path, &stop, f) < 0 || npy_read(&c->npy, &c->source, f) < 0 ||
	    copy_cast(c) < 0 || view_init(&c->view, &c->npy, &c->args, f) < 0)
		return -1;
	if (c->value_text && descr_encode(&c->dst.descr, &c->value, c->value_text, c->fill, f) < 0)
		return -1;
	if (c->scale_path && copy_format_scales(c) < 0)
		return -1;
	return npy_format(&c->dst, c->view.out_rank, c->view.out_shape, &c->header, &c->header_bytes, f);
}

/* Opens the file of the scales and writes its header. A stream is spooled and sent at the end, because the
 * boxes do not finish their scales in file order. */
static int copy_open_scales(struct copy *c)
{
	struct failure *f = &c->t->error;

	if (output_open(&c->scale_output, c->scale_path, c->scale_header_bytes + c->view.scale_bytes,
	                c->clobber, &stop, f) < 0 ||
	    (c->scale_output.is_stream && output_spool(&c->scale_output, &c->memory, f) < 0))
		return -1;
	return output_write(&c->scale_output, c->scale_header, c->scale_header_bytes, 0, f);
}

static int copy_run(struct copy *c)
{
	struct failure *f = &c->t->error;
	uint64_t end = c->npy.data_offset + c->npy.data_bytes;
	struct mover_job job = {
		.view = &c->view,
		.fill = c->fill,
		.cast = &c->cast,
		.value = c->value,
		.source = &c->source,
		.source_end = end,
		.source_items = c->npy.count,
		.output = &c->output,
		.header_bytes = c->header_bytes,
		.scale_output = &c->scale_output,
		.scale_header_bytes = c->scale_header_bytes,
		.stop = &stop,
		.order = &c->order,
	};
	struct output *const outputs[] = { &c->output, &c->scale_output };

	if (output_open(&c->output, c->dst_path, c->header_bytes + c->view.dst_bytes, c->clobber, &stop, f) <
	        0 ||
	    output_write(&c->output, c->header, c->header_bytes, 0, f) < 0 ||
	    (c->scale_path && copy_open_scales(c) < 0) || source_check(&c->source, f) < 0)
		return -1;
	job.memory = c->memory;
	if (c->view.dst_bytes && mover_run(c->t, &job, copy_progress, c, &c->result, f) < 0)
		return -1;
	if (source_finish(&c->source, end, f) < 0 || copy_progress(c, 1, f) < 0)
		return -1;
	return output_commit_all(outputs, c->scale_path ? 2 : 1, f);
}

static void copy_deinit(struct copy *c)
{
	progress_clear(&c->progress);
	output_deinit(&c->output);
	output_deinit(&c->scale_output);
	npy_deinit(&c->npy);
	cast_args_deinit(&c->cast_args);
	free(c->header);
	free(c->scale_header);
	source_close(&c->source);
}

/* ---- What is said ----------------------------------------------------------------------------------- */

static int copy_progress(void *arg, double done, struct failure *f)
{
	struct copy *c = arg;
	char rate[40] = "";

	if (atomic_load(&caught))
		return fail(f, EXIT_FAILED, "%s: stopped by signal %d; nothing was written", c->dst_path,
		            atomic_load(&caught));
	if (!progress_is_due(&c->progress))
		return 0;
	print_bytes((uint64_t)((double)c->view.dst_bytes * done / progress_seconds(&c->progress)), rate,
	            sizeof rate - 2);
	strcat(rate, "/s");
	progress_show(&c->progress, c->output.path, done, rate);
	return 0;
}

/* Prints the text between the quotes of a Python string literal as a JSON string. Backslashes before quotes
 * and backslashes are dropped; other escapes stay as they are. */
static void print_literal_text(const char *text, size_t len, bool utf8)
{
	char *plain = malloc(len + 1);
	size_t n = 0;

	for (size_t i = 0; plain && i < len; i++) {
		if (text[i] == '\\' && i + 1 < len && strchr("\\'\"", text[i + 1]))
			i++;
		plain[n++] = text[i];
	}
	print_json_string(plain ? plain : text, plain ? n : len, utf8);
	free(plain);
}

static void print_literal(const struct literals *l, const struct literal *node, bool utf8)
{
	const char *comma = "";

	if (node->kind == LITERAL_STRING) {
		print_literal_text(l->text + node->start, node->end - node->start, utf8);
	} else if (node->kind == LITERAL_INT) {
		printf("%" PRId64, node->value);
	} else {
		putchar('[');
		for (const struct literal *child = literal_child(l, node); child;
		     child = literal_next(l, child)) {
			fputs(comma, stdout);
			print_literal(l, child, utf8);
			comma = ", ";
		}
		putchar(']');
	}
}

/* Prints a type code as a JSON string and the fields of a structured type as lists of name, type and shape.
 * The recursion is safe, because the parser has bounded the depth. */
static void print_descr(const struct npy *npy)
{
	struct literals l;
	const char *what;
	size_t at;

	if (!literals_parse(&l, npy->descr_text, npy->descr_len, &at, &what))
		print_literal(&l, l.nodes, npy->utf8);
	else
		print_json_string(npy->descr_text, npy->descr_len, npy->utf8);
	literals_deinit(&l);
}

static void print_shape(const char *key, int rank, const int64_t *shape)
{
	printf(", \"%s\": [", key);
	for (int d = 0; d < rank; d++)
		printf("%s%" PRId64, d ? ", " : "", shape[d]);
	putchar(']');
}

static void copy_print_json(const struct copy *c, double seconds)
{
	printf("{\"path\": ");
	print_json_string(c->result.path, strlen(c->result.path), true);
	printf(", \"bytes\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"seconds\": %.6f", c->result.bytes,
	       c->result.ns, seconds);
	printf(", \"reconnects\": %u", c->result.reconnects);
	print_shape("src_shape", c->npy.rank, c->npy.shape);
	print_shape("dst_shape", c->view.out_rank, c->view.out_shape);
	printf(", \"dtype\": ");
	print_json_string(c->dst.descr.name, strlen(c->dst.descr.name), true);
	printf(", \"descr\": ");
	print_descr(&c->dst);
	printf(", \"src_dtype\": ");
	print_json_string(c->npy.descr.name, strlen(c->npy.descr.name), true);
	if (c->scale_path) {
		const char *name = tma_dtype_name(c->cast_args.amax.dtype);

		print_shape("scale_shape", c->view.out_rank, c->view.scale_shape);
		printf(", \"scale_dtype\": ");
		print_json_string(name, strlen(name), true);
	}
	printf("}\n");
}

static void copy_print(struct copy *c)
{
	double seconds = progress_seconds(&c->progress);
	char bytes[32];

	if (c->t->json) {
		copy_print_json(c, seconds);
		return;
	}
	if (c->t->quiet)
		return;
	progress_clear(&c->progress);
	printf("%s -> %s", c->source.path, c->output.path);
	if (c->scale_path)
		printf(", %s", c->scale_output.path);
	printf("  %s", print_bytes(c->view.dst_bytes, bytes, sizeof bytes));
	if (c->result.ns)
		printf("  %s  %.3g GB/s", c->result.path, (double)c->result.bytes / (double)c->result.ns);
	printf("  %.2f s", seconds);
	if (c->result.reconnects)
		printf("  reconnected %u time%s", c->result.reconnects, c->result.reconnects == 1 ? "" : "s");
	putchar('\n');
}
