/* SPDX-License-Identifier: Apache-2.0 */
/* A scrape is a snapshot, which is written as its peer reads. */
#include "page.h"

#include <stdlib.h>
#include <string.h>

#include "exporter.h"
#include "exposition.h"
#include "daemon/server.h"
#include "snapshot.h"

#define BLOCK_BYTES 8192

struct scrape {
	struct snapshot *snapshot;
	struct exposition exposition;
	size_t len;  /* in block */
	size_t sent; /* of len */
	char block[BLOCK_BYTES];
};

_Static_assert(BLOCK_BYTES >= EXPOSITION_ROOM, "a block holds a line");

static const char about[] = "tmad: see /metrics\n";
static const char no_page[] = "not found: try / or /metrics\n";
static const char no_method[] = "only GET and HEAD are allowed\n";

static struct MHD_Response *fixed(const char *text)
{
	struct MHD_Response *response =
	    MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);

	if (response)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	return response;
}

int pages_open(struct exporter *exporter)
{
	exporter->about = fixed(about);
	exporter->no_page = fixed(no_page);
	exporter->no_method = fixed(no_method);
	if (!exporter->about || !exporter->no_page || !exporter->no_method)
		return -1;
	return MHD_add_response_header(exporter->no_method, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES
	           ? 0
	           : -1;
}

void pages_close(struct exporter *exporter)
{
	struct MHD_Response **all[] = { &exporter->about, &exporter->no_page, &exporter->no_method };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (*all[i])
			MHD_destroy_response(*all[i]);
		*all[i] = NULL;
	}
}

/* ---- /metrics ----------------------------------------------------------------------------------------- */

static ssize_t on_room(void *cls, uint64_t pos, char *text, size_t room)
{
	struct scrape *scrape = cls;
	size_t n;

	(void)pos;
	if (scrape->sent == scrape->len) {
		scrape->sent = 0;
		scrape->len = exposition_write(&scrape->exposition, scrape->block, sizeof scrape->block);
		if (scrape->len == 0)
			return MHD_CONTENT_READER_END_OF_STREAM;
	}
	n = scrape->len - scrape->sent < room ? scrape->len - scrape->sent : room;
	memcpy(text, scrape->block + scrape->sent, n);
	scrape->sent += n;
	return (ssize_t)n;
}

static void on_scraped(void *cls)
{
	struct scrape *scrape = cls;

	free(scrape->snapshot);
	free(scrape);
}

static struct MHD_Response *scrape_new(struct server *server, bool openmetrics)
{
	struct scrape *scrape = malloc(sizeof *scrape);
	struct snapshot *snapshot = snapshot_new(server);
	struct MHD_Response *response = NULL;

	if (scrape && snapshot) {
		scrape->snapshot = snapshot;
		scrape->exposition = (struct exposition){ .snapshot = snapshot, .openmetrics = openmetrics };
		scrape->len = scrape->sent = 0;
		response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_room, scrape,
		                                             on_scraped);
	}
	if (!response) {
		free(snapshot);
		free(scrape);
		return NULL;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, exposition_type(openmetrics));
	return response;
}

/* A client that accepts it at all can read it; those that prefer something else do not list it first. */
static bool wants_openmetrics(struct MHD_Connection *connection)
{
	const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	return accept && strstr(accept, "application/openmetrics-text");
}

static enum MHD_Result answer_scrape(struct exporter *exporter, struct MHD_Connection *connection)
{
	struct MHD_Response *response = scrape_new(exporter->server, wants_openmetrics(connection));
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	r = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return r;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

/* Called with the head of a request, with each part of a body, which is ignored, and at its end. */
enum MHD_Result page_answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *upload, size_t *upload_size, void **context)
{
	struct exporter *exporter = cls;

	(void)version;
	(void)upload;
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return *context
		           ? MHD_NO
		           : MHD_queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, exporter->no_method);
	if (!*context) {
		*context = exporter; /* the head has arrived */
		exporter_on_request(exporter, connection);
		return MHD_YES;
	}
	if (*upload_size > 0)
		return MHD_NO;
	if (!strcmp(url, "/metrics"))
		return answer_scrape(exporter, connection);
	if (!strcmp(url, "/"))
		return MHD_queue_response(connection, MHD_HTTP_OK, exporter->about);
	return MHD_queue_response(connection, MHD_HTTP_NOT_FOUND, exporter->no_page);
}
