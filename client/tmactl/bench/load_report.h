/* SPDX-License-Identifier: Apache-2.0 */
/* Reports a load's measurements on standard output: a few lines, or one JSON object. kind names the
 * request. */
#ifndef CLIENT_TMACTL_BENCH_LOAD_REPORT_H
#define CLIENT_TMACTL_BENCH_LOAD_REPORT_H

#include "load.h"

void load_report(const struct load *load, const char *kind, const struct load_result *r);

/* f is why the run has failed, or NULL. */
void load_report_json(const struct load *load, const char *kind, const struct load_result *r,
                      const struct failure *f);

#endif
