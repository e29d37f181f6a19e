/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of settings, parses them, and merges them with the command line. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

/* ==== Files ========================================================================================== */

/* Parses one file of settings. libinih splits the lines into names and values. What libinih would silently
 * skip or accept is checked before it sees a line: lines longer than its buffer, control characters, unknown
 * sections. */

#define BOM        "\xef\xbb\xbf"
#define LINE_BYTES 198 /* fits into libinih's buffer in every build; config_kept relies on it */

enum section {
	SECTION_NONE, /* before the first section */
	SECTION_TMAD,
	SECTION_LIMITS,
	SECTION_OVERRIDE, /* a section such as [limits "uid:1004"] */
	SECTION_UNKNOWN,  /* an unknown section, which has been reported; its contents are skipped */
};

static const char *const sections[] = { [SECTION_TMAD] = "tmad", [SECTION_LIMITS] = "limits" };

/* The state of the parser of one file. */
struct reading {
	struct config *config;
	struct config_file *file;
	const char *next, *end;    /* start of the next line, and end of the text */
	unsigned line;             /* number of the current line */
	enum section section;      /* section of the current line */
	struct override *override; /* the section's override; valid in SECTION_OVERRIDE */
	bool is_due; /* the line must be name = value, and libinih has not called on_value for it */
};

static void config_error(struct config *config, const char *format, ...);
static void config_no_memory(struct config *config);
static char *give_line(char *buffer, int room, void *stream);
static int on_value(void *user, const char *section, const char *name, const char *value);
static void settle_line(struct reading *r);

void config_parse(struct config *config, struct config_file *file, const char *text, size_t size)
{
	struct reading r = { .config = config, .file = file, .next = text, .end = text + size };

	if (size >= strlen(BOM) && !memcmp(text, BOM, strlen(BOM)))
		r.next += strlen(BOM);
	ini_parse_stream(give_line, &r, on_value, &r);
	settle_line(&r);
}

/* ---- The file ----------------------------------------------------------------------------------------- */

static ssize_t read_all(int fd, char *text, size_t room)
{
	size_t used = 0;
	ssize_t n;

	do {
		n = read(fd, text + used, room - used);
		if (n < 0 && errno != EINTR)
			return -errno;
		used += n > 0 ? (size_t)n : 0;
	} while (n != 0 && used < room);
	return (ssize_t)used;
}

static void parse_open(struct config *config, struct config_file *file, int fd, char *text)
{
	struct stat about;
	ssize_t size;

	if (fstat(fd, &about) < 0 || !S_ISREG(about.st_mode)) {
		config_error(config, "%s: it is not a regular file", file->path);
		return;
	}
	size = read_all(fd, text, CONFIG_FILE_BYTES + 1);
	if (size < 0)
		config_error(config, "%s: %s", file->path, strerror((int)-size));
	else if (size > CONFIG_FILE_BYTES)
		config_error(config, "%s: a settings file has at most %d bytes", file->path,
		             CONFIG_FILE_BYTES);
	else
		config_parse(config, file, text, (size_t)size);
}

/* Opens and parses file->path. A missing file is an error only if needed is true. */
static void config_parse_file(struct config *config, struct config_file *file, bool needed)
{
	/* O_NONBLOCK: open must not wait for the other end if the file is a pipe. */
	int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	char *text;

	if (fd < 0 && !needed && (errno == ENOENT || errno == ENOTDIR))
		return;
	file->is_read = true;
	if (fd < 0) {
		config_error(config, "%s: %s", file->path, strerror(errno));
		return;
	}
	text = malloc(CONFIG_FILE_BYTES + 1);
	if (text)
		parse_open(config, file, fd, text);
	else
		config_no_memory(config);
	free(text);
	close(fd);
}

/* ---- A line, on its way to libinih -------------------------------------------------------------------- */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool is_comment(char c)
{
	return c == '#' || c == ';';
}

/* Sets *ret to WHO in the section name limits "WHO", and returns its length, or 0 if the name has another
 * form. */
static size_t find_who(const char *name, size_t len, const char **ret)
{
	size_t begin = strlen(sections[SECTION_LIMITS]);

	if (len < begin || memcmp(name, sections[SECTION_LIMITS], begin))
		return 0;
	while (begin < len && is_blank(name[begin]))
		begin++;
	if (len < begin + 2 || name[begin] != '"' || name[len - 1] != '"')
		return 0;
	*ret = name + begin + 1;
	return len - begin - 2;
}

static void enter_override(struct reading *r, const char *who, size_t len)
{
	char text[LINE_BYTES];
	struct override like;
	struct error rule;

	snprintf(text, sizeof text, "%.*s", (int)len, who);
	if (override_parse(text, &like, &rule) < 0) {
		config_error(r->config, "%s:%u: [limits \"%s\"]: %s", r->file->path, r->line, text,
		             rule.message);
		return;
	}
	r->override = overrides_get(&r->config->overrides, &like);
	if (r->override)
		r->section = SECTION_OVERRIDE;
	else
		config_error(
		    r->config,
		    "%s:%u: [limits \"%s\"]: at most %d users, groups and cgroups can have limits of their own",
		    r->file->path, r->line, text, OVERRIDES_MOST);
}

/* Parses the section line from text to end. Sets r->section, which is SECTION_UNKNOWN if the line has an
 * error. */
static void enter_section(struct reading *r, const char *text, const char *end)
{
	const char *close = memchr(text, ']', (size_t)(end - text)), *rest, *who;
	size_t len, who_len;

	r->section = SECTION_UNKNOWN;
	if (!close) {
		config_error(r->config, "%s:%u: %.*s: a section's name ends with ]", r->file->path, r->line,
		             (int)(end - text), text);
		return;
	}
	for (rest = close + 1; rest < end && is_blank(*rest); rest++)
		;
	if (rest < end && !is_comment(*rest)) {
		config_error(r->config, "%s:%u: %.*s: nothing may follow a section's name", r->file->path,
		             r->line, (int)(end - text), text);
		return;
	}
	len = (size_t)(close - text - 1);
	for (enum section s = SECTION_TMAD; s <= SECTION_LIMITS; s++)
		if (strlen(sections[s]) == len && !memcmp(sections[s], text + 1, len))
			r->section = s;
	who_len = find_who(text + 1, len, &who);
	if (who_len > 0)
		enter_override(r, who, who_len);
	else if (r->section == SECTION_UNKNOWN)
		config_error(
		    r->config,
		    "%s:%u: [%.*s]: unknown section; there are [tmad], [limits] and, for one user or "
		    "group, sections such as [limits \"uid:1004\"]",
		    r->file->path, r->line, (int)len, text + 1);
}

/* Returns whether libinih gets to see the line; if not, it gets an empty line instead. most is the length of
 * the longest line that fits into libinih's buffer. */
static bool is_passed_on(struct reading *r, const char *text, const char *end, size_t most)
{
	for (const char *c = text; c < end; c++)
		if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f) {
			config_error(r->config, "%s:%u: byte 0x%02x: a settings file contains only text",
			             r->file->path, r->line, (unsigned char)*c);
			return false;
		}
	if (text == end || is_comment(*text))
		return false;
	if ((size_t)(end - text) > most) {
		config_error(r->config, "%s:%u: a line of %zu bytes, but a line has at most %zu",
		             r->file->path, r->line, (size_t)(end - text), most);
		return false;
	}
	if (*text == '[') {
		enter_section(r, text, end);
		return r->section != SECTION_UNKNOWN;
	}
	r->is_due = r->section != SECTION_UNKNOWN;
	return r->is_due;
}

/* The reader for libinih, which works as fgets does: room includes the line break and the terminator. */
static char *give_line(char *buffer, int room, void *stream)
{
	struct reading *r = stream;
	size_t most = room - 2 < LINE_BYTES ? (size_t)room - 2 : LINE_BYTES;
	const char *text = r->next, *end;
	size_t len = 0;

	settle_line(r);
	if (text == r->end)
		return NULL;
	end = memchr(text, '\n', (size_t)(r->end - text));
	r->next = end ? end + 1 : r->end;
	if (!end)
		end = r->end;
	r->line++;
	if (end > text && end[-1] == '\r')
		end--;
	while (end > text && is_blank(end[-1]))
		end--;
	/* libinih would append an indented line to the previous value. */
	while (text < end && is_blank(*text))
		text++;
	if (is_passed_on(r, text, end, most)) {
		len = (size_t)(end - text);
		memcpy(buffer, text, len);
	}
	buffer[len] = '\n';
	buffer[len + 1] = '\0';
	return buffer;
}

/* Reports the last line if it was due and libinih found no name and value in it. */
static void settle_line(struct reading *r)
{
	if (r->is_due)
		config_error(r->config, "%s:%u: a line is name = value, [section] or # comment",
		             r->file->path, r->line);
	r->is_due = false;
}

/* ---- A value ------------------------------------------------------------------------------------------ */

static void refuse_name(struct reading *r, const char *name)
{
	char nearest[SETTING_NAME_BYTES];

	if (setting_nearest(name, OPTION_PLACE_FILE, nearest))
		config_error(r->config, "%s:%u: %s: unknown setting; did you mean %s?", r->file->path,
		             r->line, name, nearest);
	else
		config_error(r->config, "%s:%u: %s: unknown setting", r->file->path, r->line, name);
}

/* Returns whether the limit may be set in the section of a user, group or cgroup, and reports an error if
 * not. limit is negative for an option. */
static bool check_overridden(struct reading *r, int limit, const char *name)
{
	const struct override *o = r->override;

	if (limit < 0 || !override_is_allowed(limit))
		config_error(r->config,
		             "%s:%u: %s: only limits that end with _per_uid, multiprocessors and "
		             "host_threads can be set for a user, group or cgroup",
		             r->file->path, r->line, name);
	else if (o->file[limit] == r->file->path)
		config_error(r->config, "%s:%u: %s: it was already set on line %u", r->file->path, r->line,
		             name, o->line[limit]);
	else
		return true;
	return false;
}

/* Returns whether the setting may be set in the current section, and reports an error if not. setting is -1
 * if the name is unknown. */
static bool check_name(struct reading *r, int setting, const char *name)
{
	enum section belongs = setting < OPTION_COUNT ? SECTION_TMAD : SECTION_LIMITS;

	if (setting < 0)
		refuse_name(r, name);
	else if (setting_stands_in(setting) == OPTION_PLACE_LINE)
		config_error(r->config, "%s:%u: %s: it is allowed on the command line only", r->file->path,
		             r->line, name);
	else if (r->section == SECTION_OVERRIDE)
		return check_overridden(r, setting - OPTION_COUNT, name);
	else if (r->section != belongs)
		config_error(r->config, "%s:%u: %s: it belongs in section [%s]", r->file->path, r->line, name,
		             sections[belongs]);
	else if (r->file->line[setting])
		config_error(r->config, "%s:%u: %s: it was already set on line %u", r->file->path, r->line,
		             name, r->file->line[setting]);
	else
		return true;
	return false;
}

/* Stores a limit of a section. A value of 0 is an error even where [limits] allows it, because a value of 0
 * in struct override means that the limit is not overridden. */
static void keep_override(struct reading *r, int limit, const char *name, uint64_t value)
{
	if (value == 0)
		config_error(r->config, "%s:%u: %s: 0, but for a user, group or cgroup it must be at least 1",
		             r->file->path, r->line, name);
	r->override->value[limit] = value;
	r->override->file[limit] = r->file->path;
	r->override->line[limit] = r->line;
}

/* Called by libinih for each name and value. Checks the value on scratch options, because no setting applies
 * until all files have been found correct. */
static int on_value(void *user, const char *section, const char *name, const char *value)
{
	struct reading *r = user;
	struct setting_origin from = { .text = value, .file = r->file->path, .line = r->line };
	int setting = setting_find(name);
	struct options scratch;
	char place[CONFIG_ERROR_BYTES / 2];
	struct error rule;

	(void)section; /* r->section has it */
	if (!*name)
		return 1;
	r->is_due = false;
	if (!check_name(r, setting, name))
		return 1;
	if (r->section != SECTION_OVERRIDE)
		r->file->line[setting] = r->line;
	options_init(&scratch);
	if (setting_parse(&scratch, setting, &from, &rule) < 0) {
		setting_place(setting, &from, place, sizeof place);
		config_error(r->config, "%s: %s", place, rule.message);
		return 1;
	}
	if (r->section == SECTION_OVERRIDE) {
		keep_override(r, setting - OPTION_COUNT, name,
		              *limits_at(&scratch.limits, setting - OPTION_COUNT));
		return 1;
	}
	r->file->text[setting] = strdup(value);
	if (!r->file->text[setting])
		config_no_memory(r->config);
	return 1;
}

/* ==== All of them ==================================================================================== */

#define SYSTEM_FILE SYSCONFDIR "/tmad/tmad.conf"
#define KEPT_NAME   "the previous settings" /* stands for a path in messages about a kept text */

/* ---- Errors ------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void config_error(struct config *config, const char *format, ...)
{
	va_list args;

	if (config->n_errors < CONFIG_ERRORS) {
		va_start(args, format);
		vsnprintf(config->error[config->n_errors], CONFIG_ERROR_BYTES, format, args);
		va_end(args);
	}
	config->n_errors++;
}

static void config_no_memory(struct config *config)
{
	config->no_memory = true;
	config_error(config, "no memory to read the settings");
}

void config_say_errors(const struct config *config, void (*say)(const char *line))
{
	char more[64];

	for (unsigned i = 0; i < config->n_errors && i < CONFIG_ERRORS; i++)
		say(config->error[i]);
	if (config->n_errors > CONFIG_ERRORS) {
		snprintf(more, sizeof more, "and %u more", config->n_errors - CONFIG_ERRORS);
		say(more);
	}
}

void config_say_warnings(const struct config *config, void (*say)(const char *line))
{
	if (*config->subuids.warning)
		say(config->subuids.warning);
}

/* ---- Reading ------------------------------------------------------------------------------------------ */

/* Returns the path of tmad@NAME.conf, or NULL if out of memory. path is that of tmad.conf, in the same
 * directory; name is the name of the instance. */
static char *instance_path(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	int directory = slash ? (int)(slash - path) + 1 : 0;
	char *ret;

	return asprintf(&ret, "%.*stmad@%s.conf", directory, path, name) < 0 ? NULL : ret;
}

/* Sets the paths of the files; an option --config of "" selects none. Returns false if out of memory. */
static bool find_files(struct config *config)
{
	const char *given = config->options.config, *instance = config->options.instance;
	const char *path = given ? given : SYSTEM_FILE;

	if (!*path)
		return true;
	config->file[0].path = strdup(path);
	if (instance)
		config->file[1].path = instance_path(path, instance);
	return config->file[0].path && (!instance || config->file[1].path);
}

/* Checks the limits of a section against those that bound them: the value in the same section, or else the
 * one for everybody. */
static void check_override(struct config *config, const struct override *o)
{
	const struct options *options = &config->options;
	char text[CONFIG_ERROR_BYTES];

	for (int i = 0; i < LIMIT_BOUNDS; i++) {
		const struct limit_bound *bound = &limit_bounds[i];
		uint64_t less = o->value[bound->less], more = o->value[bound->more];
		struct setting_origin from = { .file = o->file[bound->less], .line = o->line[bound->less] };
		char value[24];

		snprintf(value, sizeof value, "%" PRIu64, less);
		from.text = value;
		if (!more)
			more = *limits_at((struct limits *)&options->limits, bound->more);
		if (less && options_check_bound(options, bound, less, more, &from, text, sizeof text) < 0)
			config_error(config, "%s", text);
	}
}

/* Sets config->options to the defaults, overridden by the files and then by the command line, and checks the
 * rules that concern several settings. */
static void merge(struct config *config, int argc, char **argv)
{
	struct options *options = &config->options;
	char text[CONFIG_ERROR_BYTES];
	struct error err;

	options_init(options);
	options->overrides = &config->overrides;
	for (int f = 0; f < CONFIG_FILES; f++)
		for (int i = 0; i < SETTING_COUNT; i++) {
			struct config_file *file = &config->file[f];
			struct setting_origin from = { file->text[i], file->path, file->line[i] };

			if (from.text && setting_parse(options, i, &from, &err) < 0)
				config_error(config, "%s:%u: %s", from.file, from.line, err.message);
		}
	if (options_parse(options, argc, argv, &err) < 0) {
		config_error(config, "%s", err.message);
		return;
	}
	options_fit(options);
	for (int i = 0; i < OPTIONS_RULES; i++)
		if (options_check(options, i, text, sizeof text) < 0)
			config_error(config, "%s", text);
	for (uint32_t i = 0; i < config->overrides.n; i++)
		check_override(config, &config->overrides.of[i]);
	if (config->n_errors > 0)
		return;
	subuids_read(&config->subuids, options->subuid_file);
	options->subuids = &config->subuids;
}

/* Returns a config with the defaults and what the command line says, or NULL if out of memory. */
static struct config *config_new(int argc, char **argv)
{
	struct config *config = calloc(1, sizeof *config);
	struct error err;

	if (!config)
		return NULL;
	options_init(&config->options);
	if (options_parse(&config->options, argc, argv, &err) < 0)
		config_error(config, "%s", err.message);
	return config;
}

struct config *config_read(int argc, char **argv)
{
	struct config *config = config_new(argc, argv);

	if (!config || config->n_errors > 0)
		return config;
	if (!find_files(config)) {
		config_no_memory(config);
		return config;
	}
	for (int i = 0; i < CONFIG_FILES; i++)
		if (config->file[i].path)
			config_parse_file(config, &config->file[i], i == 0 && config->options.config);
	if (config->n_errors == 0)
		merge(config, argc, argv);
	return config;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (int f = 0; f < CONFIG_FILES; f++) {
		for (int i = 0; i < SETTING_COUNT; i++)
			free(config->file[f].text[i]);
		free(config->file[f].path);
	}
	subuids_deinit(&config->subuids);
	free(config);
}

/* ---- What is kept ------------------------------------------------------------------------------------- */

/* Writes n settings, beginning with `first`. No line gets longer than it was in its file, so all of them can
 * be parsed again. */
static void write_kept(FILE *out, const struct config *config, int first, int n)
{
	for (int i = first; i < first + n; i++) {
		const struct config_file *file = &config->file[config->file[1].text[i] ? 1 : 0];
		char name[SETTING_NAME_BYTES];

		setting_name(i, name);
		if (file->text[i] && i == OPTION_SOCKET_GROUP) /* by number: names are not looked up again */
			fprintf(out, "%s=%" PRIu32 "\n", name, config->options.socket_group);
		else if (file->text[i])
			fprintf(out, "%s=%s\n", name, file->text[i]);
	}
}

/* Writes the section of an override. Users and groups are written by number, so that names are not looked up
 * again. */
static void write_override(FILE *out, const struct override *o)
{
	if (o->kind == OVERRIDE_CGROUP)
		fprintf(out, "[limits \"cgroup:%s\"]\n", o->cgroup);
	else
		fprintf(out, "[limits \"%s:%" PRIu32 "\"]\n", o->kind == OVERRIDE_GID ? "gid" : "uid", o->id);
	for (int i = 0; i < LIMIT_COUNT; i++)
		if (o->value[i])
			fprintf(out, "%s=%" PRIu64 "\n", limit_infos[i].name, o->value[i]);
}

char *config_kept(const struct config *config)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("[tmad]\n", out);
	write_kept(out, config, 0, OPTION_COUNT);
	fputs("[limits]\n", out);
	write_kept(out, config, OPTION_COUNT, LIMIT_COUNT);
	for (uint32_t i = 0; i < config->overrides.n; i++)
		write_override(out, &config->overrides.of[i]);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

struct config *config_read_kept(int argc, char **argv, const char *text)
{
	struct config *config = config_new(argc, argv);

	if (!config || config->n_errors > 0)
		return config;
	config->file[0].path = strdup(KEPT_NAME);
	if (!config->file[0].path) {
		config_no_memory(config);
		return config;
	}
	config_parse(config, &config->file[0], text, strlen(text));
	if (config->n_errors == 0)
		merge(config, argc, argv);
	return config;
}

/* ---- --check-config ----------------------------------------------------------------------------------- */

static void say_to_stderr(const char *line)
{
	fprintf(stderr, "tmad: %s\n", line);
}

bool config_check(int argc, char **argv)
{
	struct config *config = config_read(argc, argv);
	bool ok = config && config->n_errors == 0;

	if (!config)
		say_to_stderr("no memory to read the settings");
	else
		config_say_errors(config, say_to_stderr);
	if (ok)
		config_say_warnings(config, say_to_stderr);
	for (int i = 0; ok && i < CONFIG_FILES; i++)
		if (config->file[i].path)
			printf("%s: %s\n", config->file[i].path,
			       config->file[i].is_read ? "read" : "not found");
	if (ok)
		puts("ok");
	config_free(config);
	return ok;
}
