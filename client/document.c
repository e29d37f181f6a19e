/* SPDX-License-Identifier: Apache-2.0 */
/* Documents: the tree of a reply in a single allocation, first the nodes and then the texts, so that freeing
 * the root frees everything and no tree is ever half built. The frame scan limits the depth of a reply. */
#include "client.h"

#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

struct tma_document {
	enum tma_document_kind kind;
	bool is_unsigned; /* The INT exceeds INT64_MAX. */
	uint32_t count;   /* entries of a list or map */
	size_t text_len;
	const char *key; /* the node's key in its map */
	union {
		bool boolean;
		int64_t i;
		uint64_t u;
		double real;
		const char *text;
		const struct tma_document *items;
	};
};

struct space {
	size_t nodes;
	size_t text;
};

struct builder {
	tma_document *nodes; /* next free node */
	char *text;
};

static int measure(const msgpack_object *object, struct space *space, struct error *err);
static void build(struct builder *b, tma_document *node, const msgpack_object *object);

tma_document *document_new(const void *object, struct error *err)
{
	struct space space = { .nodes = 1 };
	struct builder b;
	tma_document *root;

	if (measure(object, &space, err) < 0)
		return NULL;
	root = calloc(1, space.nodes * sizeof *root + space.text);
	if (!root) {
		error_set(err, STATUS_NO_MEMORY, "out of memory for a document of %zu nodes", space.nodes);
		return NULL;
	}
	b.nodes = root + 1;
	b.text = (char *)(root + space.nodes);
	build(&b, root, object);
	return root;
}

void tma_document_free(tma_document *document)
{
	free(document);
}

/* Adds the space that the descendants of the object and its text need. */
static int measure(const msgpack_object *object, struct space *space, struct error *err)
{
	int rc = 0;

	switch (object->type) {
	case MSGPACK_OBJECT_STR:
		space->text += object->via.str.size + 1;
		break;
	case MSGPACK_OBJECT_BIN:
		space->text += object->via.bin.size + 1;
		break;
	case MSGPACK_OBJECT_ARRAY:
		space->nodes += object->via.array.size;
		for (uint32_t i = 0; !rc && i < object->via.array.size; i++)
			rc = measure(&object->via.array.ptr[i], space, err);
		break;
	case MSGPACK_OBJECT_MAP:
		space->nodes += object->via.map.size;
		for (uint32_t i = 0; !rc && i < object->via.map.size; i++) {
			if (object->via.map.ptr[i].key.type != MSGPACK_OBJECT_STR)
				return error_set(err, STATUS_PROTOCOL, "a map key is not a string");
			rc = measure(&object->via.map.ptr[i].key, space, err);
			if (!rc)
				rc = measure(&object->via.map.ptr[i].val, space, err);
		}
		break;
	default:
		break;
	}
	return rc;
}

static const char *build_text(struct builder *b, const char *data, size_t len)
{
	char *text = b->text;

	if (len)
		memcpy(text, data, len);
	text[len] = '\0';
	b->text += len + 1;
	return text;
}

static void build_items(struct builder *b, tma_document *node, enum tma_document_kind kind, uint32_t count)
{
	node->kind = kind;
	node->count = count;
	node->items = b->nodes;
	b->nodes += count;
}

static void build(struct builder *b, tma_document *node, const msgpack_object *object)
{
	tma_document *items = b->nodes;

	switch (object->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		node->kind = TMA_DOCUMENT_BOOL;
		node->boolean = object->via.boolean;
		break;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		node->kind = TMA_DOCUMENT_INT;
		node->is_unsigned = object->via.u64 > INT64_MAX;
		node->u = object->via.u64;
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		node->kind = TMA_DOCUMENT_INT;
		node->i = object->via.i64;
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		node->kind = TMA_DOCUMENT_REAL;
		node->real = object->via.f64;
		break;
	case MSGPACK_OBJECT_STR:
		node->kind = TMA_DOCUMENT_TEXT;
		node->text_len = object->via.str.size;
		node->text = build_text(b, object->via.str.ptr, object->via.str.size);
		break;
	case MSGPACK_OBJECT_BIN:
		node->kind = TMA_DOCUMENT_TEXT;
		node->text_len = object->via.bin.size;
		node->text = build_text(b, object->via.bin.ptr, object->via.bin.size);
		break;
	case MSGPACK_OBJECT_ARRAY:
		build_items(b, node, TMA_DOCUMENT_LIST, object->via.array.size);
		for (uint32_t i = 0; i < node->count; i++)
			build(b, &items[i], &object->via.array.ptr[i]);
		break;
	case MSGPACK_OBJECT_MAP:
		build_items(b, node, TMA_DOCUMENT_MAP, object->via.map.size);
		for (uint32_t i = 0; i < node->count; i++) {
			const msgpack_object_kv *pair = &object->via.map.ptr[i];

			items[i].key = build_text(b, pair->key.via.str.ptr, pair->key.via.str.size);
			build(b, &items[i], &pair->val);
		}
		break;
	default: /* nil; the frame scan admits no ext types. */
		node->kind = TMA_DOCUMENT_NULL;
		break;
	}
}

enum tma_document_kind tma_document_kind(const tma_document *node)
{
	return node ? node->kind : TMA_DOCUMENT_NULL;
}

size_t tma_document_count(const tma_document *node)
{
	return node ? node->count : 0;
}

const tma_document *tma_document_at(const tma_document *node, size_t i, const char **ret_key)
{
	if (i >= tma_document_count(node))
		return NULL;
	if (ret_key)
		*ret_key = node->items[i].key;
	return &node->items[i];
}

const tma_document *tma_document_find(const tma_document *node, const char *key)
{
	if (!key || tma_document_kind(node) != TMA_DOCUMENT_MAP)
		return NULL;
	for (size_t i = 0; i < node->count; i++)
		if (!strcmp(node->items[i].key, key))
			return &node->items[i];
	return NULL;
}

const char *tma_document_text(const tma_document *node)
{
	return tma_document_kind(node) == TMA_DOCUMENT_TEXT ? node->text : NULL;
}

int64_t tma_document_int(const tma_document *node)
{
	switch (tma_document_kind(node)) {
	case TMA_DOCUMENT_BOOL:
		return node->boolean;
	case TMA_DOCUMENT_INT:
		return node->is_unsigned ? INT64_MAX : node->i;
	case TMA_DOCUMENT_REAL:
		if (!(node->real > (double)INT64_MIN))
			return node->real <= (double)INT64_MIN ? INT64_MIN : 0;
		return node->real < (double)INT64_MAX ? (int64_t)node->real : INT64_MAX;
	default:
		return 0;
	}
}

double tma_document_real(const tma_document *node)
{
	switch (tma_document_kind(node)) {
	case TMA_DOCUMENT_INT:
		return node->is_unsigned ? (double)node->u : (double)node->i;
	case TMA_DOCUMENT_REAL:
		return node->real;
	default:
		return 0;
	}
}

const char *document_bytes(const tma_document *node, size_t *ret_len)
{
	*ret_len = node->text_len;
	return node->text;
}

bool document_uint(const tma_document *node, uint64_t *ret)
{
	if (node->is_unsigned)
		*ret = node->u;
	return node->is_unsigned;
}
