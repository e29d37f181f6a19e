/* SPDX-License-Identifier: Apache-2.0 */
/* What makes tests/support/astray.c's device go: a transpose to so many bytes. */
#ifndef TESTS_SUPPORT_ASTRAY_H
#define TESTS_SUPPORT_ASTRAY_H

#define ASTRAY_BYTES 6660

#endif
