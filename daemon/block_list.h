/* From the fields of a gather or a scatter to a list of blocks that an engine may run. */
#ifndef DAEMON_BLOCK_LIST_H
#define DAEMON_BLOCK_LIST_H

#include <stdint.h>

#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "transforms.h"

struct session;

/* Lives as long as the job that runs it, with copies of what came in the message. */
struct block_list {
	struct engine_blocks blocks;
	struct placed placed;
	struct region *index; /* NULL: the entries came in the message */
	uint64_t n;      /* entries and layers as they were asked for: of an empty list the engine gets */
	uint32_t layers; /* one entry of -1, and of blocks without bytes one layer */
	int64_t *sorted; /* room for as many offsets as dst has layers */
	int64_t words[]; /* offsets of layers, room to sort them, entries */
};

/* All of a request's fields but its order. *ret_plan has a reference for the caller, and *ret is the caller's
 * to free; nothing of either is left when it is refused. */
int block_list_new(struct session *session, const struct msg_blocks *params, bool scatter,
                   struct block_list **ret, struct plan_entry **ret_plan, struct error *err);

void block_list_free(struct block_list *list);

#endif
