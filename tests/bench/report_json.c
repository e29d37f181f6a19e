/* SPDX-License-Identifier: Apache-2.0 */
/* A report as JSON: the times of every run, and the figures made of them. Only the times are read back. */
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

static json_t *json_of_row(const struct report_row *row)
{
	json_t *shape = json_array();

	for (int d = 0; d < row->rank; d++)
		json_array_append_new(shape, json_integer(row->shape[d]));
	return json_pack("{s:s, s:s, s:o, s:s, s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "what", row->what,
	                 "dtype", row->dtype, "shape", shape, "family", row->family, "bar", row->bar, "bytes",
	                 row->bytes, "base_ns", json_of_times(row->base_ns, row->n_runs), "tmad_ns",
	                 json_of_times(row->ours_ns, row->n_runs), "base_gb_s", json_of_spread(&row->base),
	                 "tmad_gb_s", json_of_spread(&row->ours), "ratio", json_of_spread(&row->ratio));
}

/* One line for the run, and one for each row. */
int report_write_json(FILE *out, const struct report *report, struct error *err)
{
	size_t flags = JSON_COMPACT; /* with all digits: what is read back is the same */
	json_t *run = json_pack("{s:s, s:s, s:s, s:s, s:i}", "date", report->date, "machine", report->machine,
	                        "engine", report->engine, "base", report->base, "threads", report->threads);
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

/* The number of times, or -1 when they are none. */
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

static int read_shape(const json_t *array, int64_t shape[REPORT_MAX_RANK])
{
	size_t rank = json_array_size(array);

	if (!json_is_array(array) || rank > REPORT_MAX_RANK)
		return -1;
	for (size_t d = 0; d < rank; d++) {
		if (!json_is_integer(json_array_get(array, d)))
			return -1;
		shape[d] = json_integer_value(json_array_get(array, d));
	}
	return (int)rank;
}

static int read_row(json_t *node, struct report *report, const char *path, struct error *err)
{
	const char *what, *dtype, *family;
	const json_t *shape, *base, *ours;
	const struct report_row *added;
	struct report_row row = { 0 };
	json_error_t why;

	if (json_unpack_ex(node, &why, 0, "{s:s, s:s, s:o, s:s, s:F, s:F, s:o, s:o}", "what", &what, "dtype",
	                   &dtype, "shape", &shape, "family", &family, "bar", &row.bar, "bytes", &row.bytes,
	                   "base_ns", &base, "tmad_ns", &ours) < 0)
		return refuse(path, why.text, err);
	snprintf(row.what, sizeof(row.what), "%s", what);
	snprintf(row.dtype, sizeof(row.dtype), "%s", dtype);
	snprintf(row.family, sizeof(row.family), "%s", family);
	row.rank = read_shape(shape, row.shape);
	row.n_runs = read_times(base, row.base_ns);
	if (row.rank < 0 || row.n_runs < 0 || read_times(ours, row.ours_ns) != row.n_runs)
		return refuse(path, "a row's shape or times", err);
	return report_add(report, &row, &added, err);
}

static int read_report(json_t *root, struct report *report, const char *path, struct error *err)
{
	const char *date, *machine, *engine, *base;
	json_t *rows;
	json_error_t why;

	if (json_unpack_ex(root, &why, 0, "{s:{s:s, s:s, s:s, s:s, s:i}, s:o}", "run", "date", &date,
	                   "machine", &machine, "engine", &engine, "base", &base, "threads", &report->threads,
	                   "rows", &rows) < 0)
		return refuse(path, why.text, err);
	if (!json_is_array(rows))
		return refuse(path, "rows are no array", err);
	snprintf(report->date, sizeof(report->date), "%s", date);
	snprintf(report->machine, sizeof(report->machine), "%s", machine);
	snprintf(report->engine, sizeof(report->engine), "%s", engine);
	snprintf(report->base, sizeof(report->base), "%s", base);
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
