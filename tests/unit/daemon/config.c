/* SPDX-License-Identifier: Apache-2.0 */
/* Tests files of settings: valid settings reach their fields, and all invalid ones are reported with their
 * lines. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config/config.h"

static char *no_arguments[] = { (char[]){ "tmad" }, NULL };

/* Writes text to a file in a directory of its own, or writes no file if text is NULL, and returns its
 * path. */
static const char *in_file(const char *directory, const char *name, const char *text, size_t size)
{
	static char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	file = fopen(path, "w");
	cr_assert(file && fwrite(text, 1, size, file) == size && fclose(file) == 0);
	return path;
}

static struct config *read_text(const char *text, size_t size)
{
	char directory[] = "/tmp/tmad-config-XXXXXX", option[192];
	char *argv[] = { (char[]){ "tmad" }, option, NULL };
	const char *path;
	struct config *config;

	cr_assert(mkdtemp(directory));
	path = in_file(directory, "f", text, size);
	snprintf(option, sizeof option, "--config=%s", path);
	config = config_read(2, argv);
	cr_assert(config);
	unlink(path);
	rmdir(directory);
	return config;
}

/* ---- What is refused ---------------------------------------------------------------------------------- */

struct bad_row {
	char text[300];
	unsigned size; /* 0: the length of text */
	unsigned line;
	char message[96]; /* follows the number of the line */
};

ParameterizedTestParameters(config, refuses)
{
	static struct bad_row rows[] = {
		{ "[tmad]\nengine = gpu\n", 0, 2, "engine = gpu: it takes one of auto, cpu, cuda" },
		{ "[tmad]\r\n\r\nthreads=two", 0, 3, "threads = two: it takes a whole number from 0" },
		{ "[limits]\njobs_per_uid = 0\n", 0, 2, "jobs-per-uid = 0: it takes a whole number from 1" },
		{ "[limits]\nconnections =\n", 0, 2, "connections = : it takes a whole number" },
		{ "[limits]\nconnections = -3\n", 0, 2, "connections = -3: it takes" },
		{ "[limits]\nconnections = 99999999999999999999\n", 0, 2, "connections = 9999" },
		{ "[tmad]\nsocket =\n", 0, 2, "socket = : it takes a value" },
		{ "[tmad]\nthreds = 3\n", 0, 2, "threds: unknown setting; did you mean threads?" },
		{ "[tmad]\nnothing-of-ours = 3\n", 0, 2, "nothing-of-ours: unknown setting" },
		{ "[limits]\nconnexions_per-uid = 3\n", 0, 2,
		  "connexions_per-uid: unknown setting; did you mean connections-per-uid?" },
		{ "[tmad]\nconfig = /a\n", 0, 2, "config: it is allowed on the command line only" },
		{ "[tmad]\nhelp = 1\n", 0, 2, "help: it is allowed on the command line only" },
		{ "[tmad]\nconnections = 1\n", 0, 2, "connections: it belongs in section [limits]" },
		{ "[limits]\nthreads = 1\n", 0, 2, "threads: it belongs in section [tmad]" },
		{ "threads = 1\n", 0, 1, "threads: it belongs in section [tmad]" },
		{ "[tmad]\nlog-level = info\n[tmad]\nlog_level = info\n", 0, 4,
		  "log_level: it was already set on line 2" },
		{ "# a\n[other]\nthreads = 1\n", 0, 2,
		  "[other]: unknown section; there are [tmad], [limits] and" },
		{ "[Tmad]\n", 0, 1, "[Tmad]: unknown section" },
		{ "[tmad \nthreads = 1\n", 0, 1, "[tmad: a section's name ends with ]" },
		{ "[tmad] threads = 1\n", 0, 1, "[tmad] threads = 1: nothing may follow a section's name" },
		{ "[tmad]\nthreads\n", 0, 2, "a line is name = value, [section] or # comment" },
		{ "[tmad]\nthreads = 1\n  more\n", 0, 3, "a line is name = value" },
		{ "[tmad]\n= 3\n", 0, 2, "a line is name = value" },
		{ "[limits \"cgroup:\"]\n", 0, 1, "[limits \"cgroup:\"]: a cgroup's path begins with /" },
		{ "[limits \"cgroup:a/b\"]\n", 0, 1, "[limits \"cgroup:a/b\"]: a cgroup's path begins" },
		{ "[limits \"cgroup:/a/\"]\n", 0, 1, "[limits \"cgroup:/a/\"]: a cgroup's path begins" },
		{ "[limits \"cgroup://a\"]\n", 0, 1, "[limits \"cgroup://a\"]: a cgroup's path begins" },
		{ "[limits \"cgroup:/a//b\"]\n", 0, 1, "[limits \"cgroup:/a//b\"]: a cgroup's path" },
		{ "[limits \"cgroup:/a/./b\"]\n", 0, 1, "[limits \"cgroup:/a/./b\"]: a cgroup's path" },
		{ "[limits \"cgroup:/a/..\"]\n", 0, 1, "[limits \"cgroup:/a/..\"]: a cgroup's path" },
		{ "[limits \"cgroup:/..\"]\n", 0, 1, "[limits \"cgroup:/..\"]: a cgroup's path begins" },
		{ "[tmad]\nthreads = 1\0\n", 20, 2, "byte 0x00: a settings file contains only text" },
		{ "# \x1b[31m\n", 0, 1, "byte 0x1b: a settings file contains only text" },
		{ "\0", 1, 1, "byte 0x00" },
	};

	return cr_make_param_array(struct bad_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct bad_row *row, config, refuses)
{
	struct config *config = read_text(row->text, row->size ? row->size : strlen(row->text));
	char expected[160];

	snprintf(expected, sizeof expected, "/f:%u: %s", row->line, row->message);
	cr_assert_eq(config->n_errors, 1, "%s: %u errors, the last %s", row->message, config->n_errors,
	             config->error[config->n_errors - 1]);
	cr_assert(strstr(config->error[0], expected), "%s: %s", expected, config->error[0]);
	config_free(config);
}

Test(config, every_error_is_said)
{
	static const char text[] = "[tmad]\nthreads = x\n[nothing]\na = b\n[limits]\nconnections = 0\nword\n";
	static const char *const expected[] = { ":2: threads", ":3: [nothing]", ":6: connections",
		                                ":7: a line" };
	struct config *config = read_text(text, sizeof text - 1);

	cr_assert_eq(config->n_errors, 4);
	for (int i = 0; i < 4; i++)
		cr_assert(strstr(config->error[i], expected[i]), "%s: %s", expected[i], config->error[i]);
	config_free(config);
}

Test(config, many_errors_are_counted)
{
	char text[8 * (CONFIG_ERRORS + 5) + 16] = "";
	struct config *config;

	for (int i = 0; i < CONFIG_ERRORS + 5; i++)
		strcat(text, "word\n");
	config = read_text(text, strlen(text));
	cr_assert_eq(config->n_errors, CONFIG_ERRORS + 5);
	config_free(config);
}

/* ---- Lengths ------------------------------------------------------------------------------------------ */

Test(config, a_long_line_is_refused_and_not_cut)
{
	char text[512];
	struct config *config;

	for (size_t pad = 150; pad < 250; pad++) { /* a value that was cut at the comment would be valid */
		snprintf(text, sizeof text, "[tmad]\nthreads = %0*d\nlog-level = debug\n", (int)pad, 5);
		config = read_text(text, strlen(text));
		if (strlen("threads = ") + pad <= 198) {
			cr_assert_eq(config->n_errors, 0, "%zu: %s", pad, config->error[0]);
			cr_assert_eq(config->options.threads, 5);
			cr_assert_eq(config->options.log_level, LOG_LEVEL_DEBUG);
		} else {
			cr_assert_eq(config->n_errors, 1, "%zu", pad);
			cr_assert(strstr(config->error[0], "f:2: a line of "), "%s", config->error[0]);
		}
		config_free(config);
	}
}

Test(config, a_comment_may_be_long)
{
	char text[1024] = "#";
	struct config *config;

	memset(text + 1, 'x', 900);
	strcat(text, "\n[tmad]\nthreads = 3\n");
	config = read_text(text, strlen(text));
	cr_assert_eq(config->n_errors, 0, "%s", config->error[0]);
	cr_assert_eq(config->options.threads, 3);
	config_free(config);
}

Test(config, a_file_has_at_most_so_many_bytes)
{
	char *text = malloc(CONFIG_FILE_BYTES + 1);
	struct config *config;

	memset(text, '\n', CONFIG_FILE_BYTES + 1);
	config = read_text(text, CONFIG_FILE_BYTES);
	cr_assert_eq(config->n_errors, 0, "%s", config->error[0]);
	config_free(config);
	config = read_text(text, CONFIG_FILE_BYTES + 1);
	cr_assert_eq(config->n_errors, 1);
	cr_assert(strstr(config->error[0], "/f: a settings file has at most 65536 bytes"));
	config_free(config);
	free(text);
}

Test(config, is_a_regular_file)
{
	static const char *const paths[] = { "/", "/dev/null", "/no/such/file" };

	for (int i = 0; i < 3; i++) {
		char option[64];
		char *argv[] = { (char[]){ "tmad" }, option, NULL };
		struct config *config;

		snprintf(option, sizeof option, "--config=%s", paths[i]);
		config = config_read(2, argv);
		cr_assert_eq(config->n_errors, 1, "%s", paths[i]);
		cr_assert(strstr(config->error[0], paths[i]), "%s", config->error[0]);
		config_free(config);
	}
}

/* ---- What is read ------------------------------------------------------------------------------------- */

Test(config, every_spelling_of_a_line)
{
	static const char text[] = "\xef\xbb\xbf  [tmad] # the service\r\n"
				   "\tthreads\t=\t3 ; three\r\n"
				   "log_level:debug\r\n"
				   "; a comment\r\n"
				   "[limits]\r\n"
				   "plan-cache_entries = 7\r\n"
				   "    connections=8";
	struct config *config = read_text(text, sizeof text - 1);

	cr_assert_eq(config->n_errors, 0, "%s", config->error[0]);
	cr_assert_eq(config->options.threads, 3);
	cr_assert_eq(config->options.log_level, LOG_LEVEL_DEBUG);
	cr_assert_eq(config->options.limits.plan_cache_entries, 7);
	cr_assert_eq(config->options.limits.connections, 8);
	cr_assert_eq(config->options.origin[OPTION_THREADS].line, 2);
	cr_assert_eq(config->options.origin[OPTION_COUNT + LIMIT_INDEX_connections].line, 7);
	config_free(config);
}

Test(config, the_command_line_goes_before_the_instance_before_the_file)
{
	char directory[] = "/tmp/tmad-config-XXXXXX", option[192], path[128];
	char *argv[] = { (char[]){ "tmad" }, option, (char[]){ "--instance=0" }, (char[]){ "--threads=3" },
		         NULL };
	static const char file[] = "[tmad]\nthreads = 1\nlog-level = debug\n[limits]\nconnections = 11\n"
				   "plans_per_uid = 12\n";
	static const char instance[] = "[tmad]\nthreads = 2\n[limits]\nconnections = 21\n";
	struct config *config;

	cr_assert(mkdtemp(directory));
	in_file(directory, "tmad@0.conf", instance, sizeof instance - 1);
	snprintf(option, sizeof option, "--config=%s", in_file(directory, "any.conf", file, sizeof file - 1));
	config = config_read(4, argv);
	cr_assert_eq(config->n_errors, 0, "%s", config->error[0]);
	cr_assert_eq(config->options.threads, 3);
	cr_assert_eq(config->options.limits.connections, 21);
	cr_assert_eq(config->options.limits.plans_per_uid, 12);
	cr_assert_eq(config->options.log_level, LOG_LEVEL_DEBUG);
	config_free(config);

	snprintf(path, sizeof path, "%s/tmad@0.conf", directory);
	unlink(path);
	config = config_read(4, argv);
	cr_assert_eq(config->n_errors, 0, "an instance needs no file: %s", config->error[0]);
	cr_assert_eq(config->options.limits.connections, 11);
	config_free(config);
	snprintf(path, sizeof path, "%s/any.conf", directory);
	unlink(path);
	rmdir(directory);
}

Test(config, rules_about_several_settings_name_where_each_is)
{
	static const char text[] = "[tmad]\nengine = cpu\ndevice = 0\n", alone[] = "[tmad]\ndevice = 0\n";
	struct config *config = read_text(text, sizeof text - 1);

	cr_assert_eq(config->n_errors, 1);
	cr_assert(strstr(config->error[0], "f:3: device = 0: only the cuda engine takes a device"), "%s",
	          config->error[0]);
	cr_assert(strstr(config->error[0], "f:2: engine = cpu"), "%s", config->error[0]);
	config_free(config);

	config = read_text(alone, sizeof alone - 1);
	cr_assert_eq(config->n_errors, 1);
	cr_assert(strstr(config->error[0], "the engine is auto by default"), "%s", config->error[0]);
	config_free(config);
}

/* ---- What is kept over a restart in place ------------------------------------------------------------- */

Test(config, what_is_kept_comes_to_the_same)
{
	static const char text[] =
	    "[limits]\nconnections=8\n[tmad]\nsocket = /a = b;c\nengine:cpu\nthreads = 0003\n";
	struct config *config = read_text(text, sizeof text - 1), *again;
	char *kept, *twice;

	cr_assert_eq(config->n_errors, 0, "%s", config->error[0]);
	kept = config_kept(config);
	again = config_read_kept(1, no_arguments, kept);
	cr_assert_eq(again->n_errors, 0, "%s: %s", kept, again->error[0]);
	cr_assert_str_eq(again->options.socket, "/a = b;c");
	cr_assert_eq(again->options.engine, ENGINE_CHOICE_CPU);
	cr_assert_eq(again->options.threads, 3);
	cr_assert_eq(again->options.limits.connections, 8);
	twice = config_kept(again);
	cr_assert_str_eq(kept, twice);
	free(twice);
	free(kept);
	config_free(again);
	config_free(config);
}

/* A path may be as long as fits on a line, and may have bytes that mean something elsewhere in a file. */
Test(config, cgroups_are_kept)
{
	static const char *const paths[] = { "/", "/a", "/...", "/..a/.b", "/a\\x2db/c \"d;#=" };
	char text[1024] = "", longest[OVERRIDE_CGROUP_BYTES];
	struct config *config, *again;
	char *kept;

	memset(longest, 'l', sizeof longest - 1);
	longest[0] = '/';
	longest[sizeof longest - 1] = '\0';
	for (size_t i = 0; i < 5; i++)
		sprintf(text + strlen(text), "[limits \"cgroup:%s\"]\nplans_per_uid = %zu\n", paths[i],
		        i + 1);
	sprintf(text + strlen(text), "[limits\"cgroup:%s\"]\n", longest);
	config = read_text(text, strlen(text));
	cr_assert_eq(config->n_errors, 0, "%s", config->error[0]);
	kept = config_kept(config);
	again = config_read_kept(1, no_arguments, kept);
	cr_assert_eq(again->n_errors, 0, "%s: %s", kept, again->error[0]);
	cr_assert_eq(again->overrides.n, 6);
	for (size_t i = 0; i < 5; i++) {
		cr_assert_str_eq(again->overrides.of[i].cgroup, paths[i]);
		cr_assert_eq(again->overrides.of[i].value[LIMIT_INDEX_plans_per_uid], i + 1);
	}
	cr_assert_str_eq(again->overrides.of[5].cgroup, longest);
	free(kept);
	config_free(again);
	config_free(config);

	sprintf(text, "[limits\"cgroup:%sl\"]\n", longest);
	config = read_text(text, strlen(text));
	cr_assert_eq(config->n_errors, 1);
	cr_assert(strstr(config->error[0], "and has at most 180 bytes"), "%s", config->error[0]);
	config_free(config);
}

/* ---- Names -------------------------------------------------------------------------------------------- */

Test(config, every_setting_is_found_by_its_name)
{
	char name[SETTING_NAME_BYTES];

	for (int i = 0; i < SETTING_COUNT; i++) {
		setting_name(i, name);
		cr_assert_null(strchr(name, '_'), "%s", name);
		cr_assert_eq(setting_find(name), i, "%s", name);
		for (char *c = name; *c; c++)
			if (*c == '-')
				*c = '_';
		cr_assert_eq(setting_find(name), i, "%s", name);
		name[strlen(name) - 1] = '\0';
		cr_assert_neq(setting_find(name), i, "%s", name);
	}
	cr_assert_eq(setting_find(""), -1);
}
