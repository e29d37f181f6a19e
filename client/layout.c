/* SPDX-License-Identifier: Apache-2.0 */
/* The table of named layouts (layouts.def). */
#include "layout.h"

#include <string.h>

static const struct tma_layout layouts[] = {
#define KV(name, order, doc)             { #name, NULL, order, doc },
#define BLOCKED(name, split, order, doc) { #name, split, order, doc },
#include "layouts.def"
};

const tma_layout *tma_layout_find(const char *name)
{
	for (size_t i = 0; name && i < COUNT(layouts); i++)
		if (!strcmp(name, layouts[i].name))
			return &layouts[i];
	return NULL;
}

const tma_layout *tma_layout_at(size_t i)
{
	return i < COUNT(layouts) ? &layouts[i] : NULL;
}

const char *tma_layout_name(const tma_layout *layout)
{
	return layout ? layout->name : NULL;
}

const char *tma_layout_order(const tma_layout *layout)
{
	return layout ? layout->order : NULL;
}

const char *tma_layout_doc(const tma_layout *layout)
{
	return layout ? layout->doc : NULL;
}

bool tma_layout_is_blocked(const tma_layout *layout)
{
	return layout && layout->split;
}
