/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of files, as a test would have /proc and cgroups say. Failures are Criterion's. */
#ifndef TESTS_SUPPORT_TREE_H
#define TESTS_SUPPORT_TREE_H

#include <stddef.h>

struct tree_file {
	char path[64]; /* in the folder; "": none, nor any after it */
	char text[320];
};

struct tree {
	char root[32];
};

/* With n files at most. */
void tree_init(struct tree *tree, const struct tree_file *files, size_t n);
void tree_deinit(struct tree *tree);

#endif
