/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of files that stands for /proc or for cgroups in a test. Failures are reported to Criterion. */
#ifndef TESTS_SUPPORT_TREE_H
#define TESTS_SUPPORT_TREE_H

#include <stddef.h>

struct tree_file {
	char path[64]; /* path within the folder; "": the end of the list */
	char text[320];
};

struct tree {
	char root[32];
};

/* Reads at most n files. */
void tree_init(struct tree *tree, const struct tree_file *files, size_t n);
void tree_deinit(struct tree *tree);

#endif
