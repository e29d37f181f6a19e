#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests with the stand-in driver, on "local:" instead of a tmad. Those that are skipped say why.
exec env TEST_ENGINE=local "$TEST_BUILDDIR/service_softgpu"
