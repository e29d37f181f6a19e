# SPDX-License-Identifier: Apache-2.0
"""NIXL's exceptions, as far as they are used."""


class nixlRemoteDisconnectError(Exception):  # noqa: N801
    pass


class nixlNotFoundError(Exception):  # noqa: N801
    pass


class nixlNotAllowedError(Exception):  # noqa: N801
    pass


class nixlInvalidParamError(Exception):  # noqa: N801
    pass
