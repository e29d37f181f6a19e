# SPDX-License-Identifier: Apache-2.0
"""A server at a Unix socket that answers each request with whatever its test wants."""
import socket
import threading

import msgpack


class Liar:
    """answer(method, params) returns the reply's result. Connections are served one after the other; leaving `with`
    stops it."""

    def __init__(self, path, answer):
        self.path, self._answer = path, answer
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(path)
        self._server.listen()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while True:
            try:
                peer = self._server.accept()[0]
            except OSError:
                return
            unpacker = msgpack.Unpacker()
            with peer:
                while data := peer.recv(65536):
                    unpacker.feed(data)
                    for _, msgid, method, params in unpacker:
                        peer.sendall(msgpack.packb([1, msgid, None, self._answer(method, params)]))

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()
