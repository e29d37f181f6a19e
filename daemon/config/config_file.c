/* SPDX-License-Identifier: Apache-2.0 */
/* Parses one file of settings. libinih splits its lines; what it would silently skip is checked before it
 * sees a line: lines longer than its buffer, bytes that are no text, unknown sections. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#define BOM        "\xef\xbb\xbf"
#define LINE_BYTES 198 /* fit into libinih's buffer in every build; config_kept relies on it */

enum section {
	SECTION_NONE, /* before the first section */
	SECTION_TMAD,
	SECTION_LIMITS,
	SECTION_OVERRIDE, /* [limits "uid:1004"] */
	SECTION_UNKNOWN,  /* reported already; its contents are not checked */
};

static const char *const sections[] = { [SECTION_TMAD] = "tmad", [SECTION_LIMITS] = "limits" };

struct reading {
	struct config *config;
	struct config_file *file;
	const char *next, *end;
	unsigned line;
	enum section section;
	struct override *override; /* of SECTION_OVERRIDE */
	bool is_due;               /* the line must be name = value and has not been parsed as that */
};

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

void config_parse_file(struct config *config, struct config_file *file, bool needed)
{
	/* Avoids waiting for the other end of a pipe. */
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

/* Finds what is between the quotes of [limits "WHO"]; 0: it is something else. */
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

/* Parses [section]; returns whether it is one. */
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

/* Whether libinih is to see the line. */
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

/* As fgets: room includes the line break and the terminator. */
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
	while (text < end && is_blank(*text)) /* libinih would append it to the value before */
		text++;
	if (is_passed_on(r, text, end, most)) {
		len = (size_t)(end - text);
		memcpy(buffer, text, len);
	}
	buffer[len] = '\n';
	buffer[len + 1] = '\0';
	return buffer;
}

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

/* Tells whether the setting may stand in the section of a user, group or cgroup. */
static bool check_override(struct reading *r, int limit, const char *name)
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

/* Whether the setting may stand in this section. */
static bool check_name(struct reading *r, int setting, const char *name)
{
	enum section belongs = setting < OPTION_COUNT ? SECTION_TMAD : SECTION_LIMITS;

	if (setting < 0)
		refuse_name(r, name);
	else if (setting_stands_in(setting) == OPTION_PLACE_LINE)
		config_error(r->config, "%s:%u: %s: it is allowed on the command line only", r->file->path,
		             r->line, name);
	else if (r->section == SECTION_OVERRIDE)
		return check_override(r, setting - OPTION_COUNT, name);
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

/* 0 in a section would be no section's: it says that nothing is overridden. */
static void keep_override(struct reading *r, int limit, const char *name, uint64_t value)
{
	if (value == 0)
		config_error(r->config, "%s:%u: %s: 0, but for a user, group or cgroup it must be at least 1",
		             r->file->path, r->line, name);
	r->override->value[limit] = value;
	r->override->file[limit] = r->file->path;
	r->override->line[limit] = r->line;
}

/* Tries the value on a separate set of options: the whole file must be right before any of it applies. */
static int on_value(void *user, const char *section, const char *name, const char *value)
{
	struct reading *r = user;
	struct setting_origin from = { .text = value, .file = r->file->path, .line = r->line };
	int setting = setting_find(name);
	struct options scratch;
	char place[CONFIG_ERROR_BYTES / 2];
	struct error rule;

	(void)section; /* known from the section line */
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
