/* SPDX-License-Identifier: Apache-2.0 */
/* Writes each file exactly as given, after making its folders. */
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <criterion/criterion.h>

static void write_file(const char *root, const struct tree_file *file)
{
	char path[160];
	snprintf(path, sizeof path, "%s/%s", root, file->path);
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(path, 0700);
		*slash = '/';
	}
	FILE *out = fopen(path, "w");
	cr_assert_not_null(out, "%s", path);
	fputs(file->text, out);
	fclose(out);
}

void tree_init(struct tree *tree, const struct tree_file *files, size_t n)
{
	strcpy(tree->root, "/tmp/tma-tree-XXXXXX");
	cr_assert_not_null(mkdtemp(tree->root));
	for (size_t i = 0; i < n && *files[i].path; i++)
		write_file(tree->root, &files[i]);
}

void tree_deinit(struct tree *tree)
{
	char remove[64];
	snprintf(remove, sizeof remove, "rm -r %s", tree->root);
	cr_assert_eq(system(remove), 0);
}
