/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces libgit2, of which Criterion calls three functions to show how two texts differ. Every test is a
 * separate process, and libgit2 would load sixteen libraries and the system's certificates: without it a test
 * starts in a third of the time. The declarations follow git2/global.h and git2/diff.h, except for members
 * that nobody reads. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct git_diff_line {
	char origin; /* '-' for the old text, '+' for the new one */
	int old_lineno;
	int new_lineno;
	int num_lines;
	size_t content_len;
	int64_t content_offset;
	const char *content;
};

typedef int git_diff_line_cb(const void *delta, const void *hunk, const struct git_diff_line *line,
                             void *payload);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC int git_libgit2_init(void);
PUBLIC int git_libgit2_shutdown(void);
PUBLIC int git_diff_buffers(const void *old_text, size_t old_size, const char *old_path, const void *new_text,
                            size_t new_size, const char *new_path, const void *options, void *file_cb,
                            void *binary_cb, void *hunk_cb, git_diff_line_cb *line_cb, void *payload);

int git_libgit2_init(void)
{
	return 1;
}

int git_libgit2_shutdown(void)
{
	return 0;
}

static int show(const char *text, size_t size, char origin, git_diff_line_cb *line_cb, void *payload)
{
	int number = 1, r = 0;

	for (size_t at = 0; at < size && r == 0; number++) {
		const char *end = memchr(text + at, '\n', size - at);
		const size_t len = end ? (size_t)(end + 1 - (text + at)) : size - at;
		const struct git_diff_line line = { .origin = origin,
			                            .old_lineno = origin == '-' ? number : -1,
			                            .new_lineno = origin == '+' ? number : -1,
			                            .num_lines = 1,
			                            .content_len = len,
			                            .content_offset = (int64_t)at,
			                            .content = text + at };

		r = line_cb(NULL, NULL, &line, payload);
		at += len;
	}
	return r;
}

/* Prints all of the old text, then all of the new one. */
int git_diff_buffers(const void *old_text, size_t old_size, const char *old_path, const void *new_text,
                     size_t new_size, const char *new_path, const void *options, void *file_cb,
                     void *binary_cb, void *hunk_cb, git_diff_line_cb *line_cb, void *payload)
{
	int r = show(old_text, old_size, '-', line_cb, payload);

	(void)old_path, (void)new_path, (void)options, (void)file_cb, (void)binary_cb, (void)hunk_cb;
	return r ? r : show(new_text, new_size, '+', line_cb, payload);
}
