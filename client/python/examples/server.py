# SPDX-License-Identifier: Apache-2.0
"""A service of one's own on asyncio: transposes the arrays that clients send over a Unix socket.

A message is its length, of 8 bytes in network order, and an array as np.save writes it; the reply is the same, with the
axes reversed. All clients share one connection to tmad, on which their requests are under way at once.

    python server.py --listen /tmp/transpose.sock [--socket PATH]
    python server.py --self-test [--socket PATH]           # 50 clients in this process
"""

import argparse
import asyncio
import contextlib
import io
import os
import tempfile
from collections.abc import AsyncIterator

import numpy as np

import tmaclient as tma
import tmaclient.aio

LIMIT = 256 << 20  # bytes of a message


async def receive(reader: asyncio.StreamReader) -> np.ndarray:
    """The next array; IncompleteReadError at the end."""
    size = int.from_bytes(await reader.readexactly(8), "big")
    if size > LIMIT:
        raise ValueError(f"a message of {size} bytes; {LIMIT} are allowed")
    return np.load(io.BytesIO(await reader.readexactly(size)), allow_pickle=False)


async def send(writer: asyncio.StreamWriter, array: np.ndarray) -> None:
    """Sends an array, and waits if the other side is slow."""
    message = io.BytesIO()
    np.save(message, array, allow_pickle=False)
    writer.write(message.getbuffer().nbytes.to_bytes(8, "big"))
    writer.write(message.getbuffer())
    await writer.drain()


@contextlib.asynccontextmanager
async def serving(path: str, c: tma.aio.AsyncClient) -> AsyncIterator[asyncio.Server]:
    """A server for as long as the block lasts."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):  # the client went away
            while True:
                try:
                    array = await receive(reader)
                    result = await c.transpose(array)
                except (ValueError, tma.Error) as e:  # what is no array, or is refused, ends its connection
                    print(f"refused: {e}")
                    break
                await send(writer, result)
        writer.close()

    server = await asyncio.start_unix_server(serve, path, limit=1 << 20)
    try:
        yield server
    finally:
        server.close()


async def run_client(path: str, seed: int) -> int:
    """Sends arrays and checks what comes back."""
    rng = np.random.default_rng(seed)
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 20)
    for _ in range(10):
        shape = rng.integers(1, 20, rng.integers(1, 5))
        array = rng.random(tuple(shape)).astype(rng.choice(["f2", "f4", "f8"]))
        await send(writer, array)
        assert np.array_equal(await receive(reader), array.T)
    writer.close()
    await writer.wait_closed()
    return 10


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", metavar="PATH", help="tmad's socket")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--listen", metavar="PATH", help="the socket to serve on")
    what.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    async with tma.aio.connect(arguments.socket) as c:
        if arguments.listen:
            async with serving(arguments.listen, c) as server:
                await server.serve_forever()
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "s")
            async with serving(path, c):
                counts = await asyncio.gather(*(run_client(path, seed) for seed in range(50)))
    print(f"{sum(counts)} arrays of {len(counts)} clients came back transposed")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
