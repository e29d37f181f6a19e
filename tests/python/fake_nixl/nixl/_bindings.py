# SPDX-License-Identifier: Apache-2.0
"""The exceptions of NIXL that the stand-in raises."""


class nixlRemoteDisconnectError(Exception):  # noqa: N801
    pass


class nixlNotFoundError(Exception):  # noqa: N801
    pass


class nixlNotAllowedError(Exception):  # noqa: N801
    pass


class nixlInvalidParamError(Exception):  # noqa: N801
    pass
