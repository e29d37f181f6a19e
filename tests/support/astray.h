/* SPDX-License-Identifier: Apache-2.0 */
/* The size of the transpose that makes the device of tests/support/astray.c fail. */
#ifndef TESTS_SUPPORT_ASTRAY_H
#define TESTS_SUPPORT_ASTRAY_H

#define ASTRAY_BYTES 6660

#endif
