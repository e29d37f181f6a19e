# SPDX-License-Identifier: Apache-2.0
"""A stand-in for NIXL in one process, for tests of what transfers do when messages are late, out of order or lost with
their sender. `_api.network` is what the agents are connected by."""
