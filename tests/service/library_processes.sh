#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library's tests, by a tmad of two devices on the stand-in driver, whose engines are processes of their own.
exec env SOFTGPU_DEVICES=2 TEST_ENGINE=cuda "$TEST_BUILDDIR/service_library"
