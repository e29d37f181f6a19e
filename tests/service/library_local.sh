#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library's tests, on "local:" instead of a tmad. Those that are skipped say why.
exec env TEST_ENGINE=local "$TEST_BUILDDIR/service_library"
