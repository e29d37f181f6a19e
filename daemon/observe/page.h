/* What the exporter answers: /metrics, /, and no more. */
#ifndef DAEMON_OBSERVE_PAGE_H
#define DAEMON_OBSERVE_PAGE_H

#include <microhttpd.h>

struct exporter;

/* The answers that are always the same. Negative: out of memory; pages_close is due then too. */
int pages_open(struct exporter *exporter);
void pages_close(struct exporter *exporter);

/* An MHD_AccessHandlerCallback; cls is the exporter. */
enum MHD_Result page_answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                            const char *version, const char *upload, size_t *upload_size, void **context);

#endif
