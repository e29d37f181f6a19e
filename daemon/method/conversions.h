/* SPDX-License-Identifier: Apache-2.0 */
/* From the fields of a request to a conversion; a part of transforms.h, which has what others need of it. */
#ifndef DAEMON_METHOD_CONVERSIONS_H
#define DAEMON_METHOD_CONVERSIONS_H

#include "transforms.h"

/* The conversion that is asked for, without its places. */
int conversion_spec_of(const struct msg_transform *params, struct conversion_spec *ret, struct error *err);

/* transforms.c's: the layout of a tensor, called name; and a list of integers as an array of as many: -1: it
 * is not given. */
int tensor_layout_of(struct tensor_layout *ret, const struct msg_tensor *tensor, const char *name,
                     struct error *err);
int ints_of(int64_t *ret, const struct int_list *list, bool present);

#endif
