/* SPDX-License-Identifier: Apache-2.0 */
/* A report as JSON: the times of every run, and the figures computed from them. Only the times are read
 * back. */
#include "report.h"

#ifdef HAVE_JANSSON
#include <jansson.h>
#include <string.h>

bool report_has_json(void)
{
	return true;
}

/* ---- Writing ---------------------------------------------------------------------------------------- */

static json_t *json_of_spread(const struct spread *s)
{
	return json_pack("{s:f, s:f, s:f}", "median", s->median, "low", s->low, "high", s->high);
}

static json_t *json_of_times(const double *ns, int n)
{
	json_t *array = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(array, json_real(ns[i]));
	return array;
}

static json_t *json_of_axes(const int64_t *values, int rank)
{
	json_t *array = json_array();

	for (int d = 0; d < rank; d++)
		json_array_append_new(array, json_integer(values[d]));
	return array;
}

static json_t *json_of_row(const struct report_row *row)
{
	const struct report_request *q = &row->request;
	json_t *node;

	node = json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:s, s:I, s:I,"
	                 " s:s, s:s, s:f, s:f, s:o, s:o, s:o, s:o, s:o}",
	                 "what", row->what, "dtype", row->dtype, "shape", json_of_axes(row->shape, row->rank),
	                 "src_strides", json_of_axes(q->src_stride, row->rank), "src_offset",
	                 (json_int_t)q->src_offset, "dst_offset", (json_int_t)q->dst_offset, "perm",
	                 json_of_axes(q->perm, row->rank), "before", json_of_axes(q->before, row->rank),
	                 "after", json_of_axes(q->after, row->rank), "mode", q->mode, "value",
	                 (json_int_t)q->value, "blocks", (json_int_t)q->blocks, "family", row->family,
	                 "explain", row->explain, "bar", row->bar, "bytes", row->bytes, "base_ns",
	                 json_of_times(row->base_ns, row->n_runs), "tmad_ns",
	                 json_of_times(row->ours_ns, row->n_runs), "base_gb_s", json_of_spread(&row->base),
	                 "tmad_gb_s", json_of_spread(&row->ours), "ratio", json_of_spread(&row->ratio));
	if (*row->isa)
		json_object_set_new(node, "isa", json_string(row->isa));
	if (row->predicted > 0)
		json_object_set_new(node, "predicted", json_real(row->predicted));
	if (row->predicted_base_ns > 0)
		json_object_set_new(node, "predicted_base_ns", json_real(row->predicted_base_ns));
	if (row->is_tuned) {
		json_object_set_new(node, "chosen_ns", json_of_times(row->chosen_ns, row->n_runs));
		json_object_set_new(node, "chosen_ratio", json_of_spread(&row->chosen_ratio));
	}
	return node;
}

/* Writes one line for the run and one for each row. */
int report_write_json(FILE *out, const struct report *report, struct error *err)
{
	size_t flags = JSON_COMPACT; /* With all digits, numbers read back the same. */
	json_t *run = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s}", "date", report->date, "machine",
	                        report->machine, "engine", report->engine, "base", report->base, "threads",
	                        report->threads, "random", report->random);
	bool written = fputs("{\"run\":", out) >= 0 && json_dumpf(run, out, flags) == 0 &&
	               fputs(",\n\"rows\":[", out) >= 0;

	json_decref(run);
	for (int i = 0; i < report->n_rows && written; i++) {
		json_t *row = json_of_row(&report->rows[i]);

		written = fputs(i ? ",\n" : "\n", out) >= 0 && json_dumpf(row, out, flags) == 0;
		json_decref(row);
	}
	if (!written || fputs("\n]}\n", out) < 0 || fflush(out) < 0)
		return error_set(err, STATUS_INTERNAL, "the JSON cannot be written");
	return 0;
}

/* ---- Reading ---------------------------------------------------------------------------------------- */

static int refuse(const char *path, const char *why, struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT, "%s: not what --json writes: %s", path, why);
}

/* Returns how many times the array has, or -1 if it is invalid. */
static int read_times(const json_t *array, double ns[REPORT_MAX_RUNS])
{
	size_t n = json_array_size(array);

	if (n < 1 || n > REPORT_MAX_RUNS)
		return -1;
	for (size_t i = 0; i < n; i++) {
		ns[i] = json_number_value(json_array_get(array, i));
		if (!(ns[i] > 0))
			return -1;
	}
	return (int)n;
}

/* Returns the rank, or -1 if the array is invalid. */
static int read_axes(const json_t *array, int64_t values[REPORT_MAX_RANK])
{
	size_t rank = json_array_size(array);

	if (!json_is_array(array) || rank > REPORT_MAX_RANK)
		return -1;
	for (size_t d = 0; d < rank; d++) {
		if (!json_is_integer(json_array_get(array, d)))
			return -1;
		values[d] = json_integer_value(json_array_get(array, d));
	}
	return (int)rank;
}

/* Returns false if there is a request of another rank than the row's. */
static bool read_request(json_t *node, struct report_row *row)
{
	struct report_request *q = &row->request;
	json_t *strides, *perm, *before, *after;
	json_int_t src_offset, dst_offset, value, blocks;
	const char *mode;

	if (!json_object_get(node, "src_strides"))
		return true;
	if (json_unpack(node, "{s:o, s:I, s:I, s:o, s:o, s:o, s:s, s:I, s:I}", "src_strides", &strides,
	                "src_offset", &src_offset, "dst_offset", &dst_offset, "perm", &perm, "before",
	                &before, "after", &after, "mode", &mode, "value", &value, "blocks", &blocks) < 0)
		return false;
	q->src_offset = src_offset;
	q->dst_offset = dst_offset;
	q->value = (uint64_t)value;
	q->blocks = blocks;
	snprintf(q->mode, sizeof(q->mode), "%s", mode);
	return read_axes(strides, q->src_stride) == row->rank && read_axes(perm, q->perm) == row->rank &&
	       read_axes(before, q->before) == row->rank && read_axes(after, q->after) == row->rank;
}

static int read_row(json_t *node, struct report *report, const char *path, struct error *err)
{
	const char *what, *dtype, *family, *explain = "", *isa = "";
	const json_t *shape, *base, *ours;
	const struct report_row *added;
	struct report_row row = { 0 };
	json_error_t why;

	if (json_unpack_ex(node, &why, 0, "{s:s, s:s, s:o, s?s, s:s, s?s, s:F, s:F, s:o, s:o, s?F, s?F}",
	                   "what", &what, "dtype", &dtype, "shape", &shape, "isa", &isa, "family", &family,
	                   "explain", &explain, "bar", &row.bar, "bytes", &row.bytes, "base_ns", &base,
	                   "tmad_ns", &ours, "predicted", &row.predicted, "predicted_base_ns",
	                   &row.predicted_base_ns) < 0)
		return refuse(path, why.text, err);
	snprintf(row.what, sizeof(row.what), "%s", what);
	snprintf(row.dtype, sizeof(row.dtype), "%s", dtype);
	snprintf(row.isa, sizeof(row.isa), "%s", isa);
	snprintf(row.family, sizeof(row.family), "%s", family);
	snprintf(row.explain, sizeof(row.explain), "%s", explain);
	row.rank = read_axes(shape, row.shape);
	row.n_runs = read_times(base, row.base_ns);
	if (row.rank < 0 || row.n_runs < 0 || read_times(ours, row.ours_ns) != row.n_runs)
		return refuse(path, "a row's shape or times", err);
	row.is_tuned = json_object_get(node, "chosen_ns") != NULL;
	if (row.is_tuned && read_times(json_object_get(node, "chosen_ns"), row.chosen_ns) != row.n_runs)
		return refuse(path, "a row's times of the plan predicted to be the fastest", err);
	if (!read_request(node, &row))
		return refuse(path, "a row's strides, perm, before, after, mode or value", err);
	return report_add(report, &row, &added, err);
}

static int read_report(json_t *root, struct report *report, const char *path, struct error *err)
{
	const char *date, *machine, *engine, *base, *random = "";
	json_t *rows;
	json_error_t why;

	if (json_unpack_ex(root, &why, 0, "{s:{s:s, s:s, s:s, s:s, s:i, s?s}, s:o}", "run", "date", &date,
	                   "machine", &machine, "engine", &engine, "base", &base, "threads", &report->threads,
	                   "random", &random, "rows", &rows) < 0)
		return refuse(path, why.text, err);
	if (!json_is_array(rows))
		return refuse(path, "rows are no array", err);
	snprintf(report->date, sizeof(report->date), "%s", date);
	snprintf(report->machine, sizeof(report->machine), "%s", machine);
	snprintf(report->engine, sizeof(report->engine), "%s", engine);
	snprintf(report->base, sizeof(report->base), "%s", base);
	snprintf(report->random, sizeof(report->random), "%s", random);
	for (size_t i = 0; i < json_array_size(rows); i++) {
		int r = read_row(json_array_get(rows, i), report, path, err);

		if (r < 0)
			return r;
	}
	return 0;
}

int report_read_json(const char *path, struct report *ret, struct error *err)
{
	struct report report = { 0 };
	json_error_t why;
	json_t *root = json_load_file(path, 0, &why);
	int r;

	if (!root)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %s", path, why.text);
	r = read_report(root, &report, path, err);
	json_decref(root);
	if (r < 0)
		report_deinit(&report);
	else
		*ret = report;
	return r;
}

#else

bool report_has_json(void)
{
	return false;
}

static int refuse(struct error *err)
{
	return error_set(err, STATUS_UNSUPPORTED, "this build has no JSON: libjansson-dev was missing");
}

int report_write_json(FILE *out, const struct report *report, struct error *err)
{
	(void)out;
	(void)report;
	return refuse(err);
}

int report_read_json(const char *path, struct report *ret, struct error *err)
{
	(void)path;
	(void)ret;
	return refuse(err);
}

#endif
