/* SPDX-License-Identifier: Apache-2.0 */
/* Converts the service's documents to dicts and lists, and draws its plans. */
#include "core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tmactl/explain/picture.h"

static PyObject *convert(const tma_document *node);

static PyObject *convert_map(const tma_document *node)
{
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < tma_document_count(node); i++) {
		const char *key;
		PyObject *value = convert(tma_document_at(node, i, &key));

		if (!value || PyDict_SetItemString(dict, key, value) < 0) {
			Py_DECREF(dict);
			dict = NULL;
		}
		Py_XDECREF(value);
	}
	return dict;
}

static PyObject *convert_list(const tma_document *node)
{
	PyObject *list = PyList_New(0);

	for (size_t i = 0; list && i < tma_document_count(node); i++) {
		PyObject *value = convert(tma_document_at(node, i, NULL));

		if (!value || PyList_Append(list, value) < 0) {
			Py_DECREF(list);
			list = NULL;
		}
		Py_XDECREF(value);
	}
	return list;
}

static PyObject *convert(const tma_document *node)
{
	switch (tma_document_kind(node)) {
	case TMA_DOCUMENT_BOOL:
		return PyBool_FromLong(tma_document_int(node) != 0);
	case TMA_DOCUMENT_INT:
		return PyLong_FromLongLong(tma_document_int(node));
	case TMA_DOCUMENT_REAL:
		return PyFloat_FromDouble(tma_document_real(node));
	case TMA_DOCUMENT_TEXT:
		return PyUnicode_DecodeUTF8(tma_document_text(node),
		                            (Py_ssize_t)strlen(tma_document_text(node)), "replace");
	case TMA_DOCUMENT_LIST:
		return convert_list(node);
	case TMA_DOCUMENT_MAP:
		return convert_map(node);
	case TMA_DOCUMENT_NULL:
		break;
	}
	Py_RETURN_NONE;
}

PyObject *document_convert(tma_document *document)
{
	PyObject *object = convert(document);

	tma_document_free(document);
	return object;
}

/* ---- Explanations ---------------------------------------------------------------------------------- */

/* Returns the document in which the service explains a transform, or NULL with an exception. Caller holds the
 * lock. */
static tma_document *explain(struct py_client *c, struct py_request *request, const char *engine)
{
	tma_document *document = NULL;
	struct resolved r;
	int rc;

	if (request->kind != REQUEST_TRANSFORM) {
		PyErr_SetString(PyExc_TypeError, "explain takes a transform");
		return NULL;
	}
	if (py_request_resolve(NULL, request, &r) < 0)
		return NULL;
	CLIENT_CALL(c, rc = tma_explain_for(c->client, &r.transform, engine, &document));
	resolved_deinit(&r);
	if (py_client_check(c, rc) < 0) {
		tma_document_free(document);
		document = NULL;
	}
	return document;
}

/* Client.explain(request, engine) returns the explanation of a transform as a dict. */
PyObject *py_client_explain(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	tma_document *document;
	PyObject *request;
	const char *engine;

	if (!PyArg_ParseTuple(args, "O!z:explain", core.request_type, &request, &engine) ||
	    !py_client_enter(c))
		return NULL;
	document = explain(c, (struct py_request *)request, engine);
	py_client_unlock(c);
	return document ? document_convert(document) : NULL;
}

/* Client.picture(request, engine) returns the same as a drawing, in SVG. */
PyObject *py_client_picture(PyObject *self, PyObject *args)
{
	struct py_client *c = (struct py_client *)self;
	struct transform_request drawn = { 0 };
	tma_document *document;
	PyObject *request, *text = NULL;
	const char *engine;
	struct resolved r;
	char *svg = NULL;
	size_t size = 0;
	FILE *file;

	if (!PyArg_ParseTuple(args, "O!z:picture", core.request_type, &request, &engine) ||
	    !py_client_enter(c))
		return NULL;
	document = explain(c, (struct py_request *)request, engine);
	py_client_unlock(c);
	if (!document)
		return NULL;
	if (py_request_resolve(NULL, (struct py_request *)request, &r) < 0) {
		tma_document_free(document);
		return NULL;
	}
	file = open_memstream(&svg, &size);
	if (file) {
		drawn.src = r.src;
		drawn.dst = r.dst;
		picture_draw(file, &drawn, document);
		if (fclose(file) == 0)
			text = PyUnicode_DecodeUTF8(svg, (Py_ssize_t)size, "replace");
		free(svg);
	}
	resolved_deinit(&r);
	if (!text && !PyErr_Occurred())
		PyErr_NoMemory();
	tma_document_free(document);
	return text;
}
