#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of ranges of device memory, on "local:" instead of a tmad. Those that are skipped say why.
exec env TEST_ENGINE=local "$TEST_BUILDDIR/service_ranges"
