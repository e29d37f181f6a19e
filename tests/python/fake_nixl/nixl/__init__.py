# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NIXL in one process, for tests of transfers whose messages are late, out of order, or lost with their
sender. `_api.network` connects the agents."""
