/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a load's measurements to standard output, as a few lines or as one JSON object. kind is the
 * request's name as --kind takes it. */
#ifndef CLIENT_TMACTL_BENCH_LOAD_REPORT_H
#define CLIENT_TMACTL_BENCH_LOAD_REPORT_H

#include "load.h"

void load_report(const struct load *load, const char *kind, const struct load_result *r);

/* f is the failure of the run, which is printed too; NULL: the run succeeded. */
void load_report_json(const struct load *load, const char *kind, const struct load_result *r,
                      const struct failure *f);

#endif
