/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of the exporter: /metrics and /; everything else is 404. */
#ifndef DAEMON_OBSERVE_PAGE_H
#define DAEMON_OBSERVE_PAGE_H

#include <microhttpd.h>

struct exporter;

/* Creates the fixed answers. Negative: out of memory; pages_close must be called then too. */
int pages_open(struct exporter *exporter);
void pages_close(struct exporter *exporter);

/* An MHD_AccessHandlerCallback; cls is the exporter. */
enum MHD_Result page_answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *upload, size_t *upload_size, void **context);

#endif
