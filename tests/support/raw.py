# SPDX-License-Identifier: Apache-2.0
"""What tests of requests share: the protocol by hand, with python3-msgpack and socket.send_fds."""
import unittest

from tmad import Memory, RpcError, Tmad, wait_until


class RawCase(unittest.TestCase):
    """Starts one daemon for the class and opens one connection for each test. No test may leave descriptors or regions
    behind."""

    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)
        with cls.tmad.rpc() as rpc:  # Some descriptors are opened once and stay open.
            rpc.call("ping")
        cls.idle_fds = wait_until(cls.tmad.fds, "a number")

    def setUp(self):
        self.rpc = self.tmad.rpc()
        self.memories = []

    def tearDown(self):
        for memory in self.memories:
            memory.close()
        self.rpc.close()
        with self.tmad.rpc() as rpc:
            wait_until(lambda: self.levels(rpc) == (1, 0, 0, 0), "only this connection is left, and no region")
        wait_until(lambda: self.tmad.fds() <= self.idle_fds, "the daemon's fds are back where they were")
        self.assertEqual(self.tmad.mappings_of_memfds(), 0)

    @staticmethod
    def levels(rpc):
        stats = rpc.call("stats")
        return stats["connections"], stats["regions"], stats["mapped_bytes"], stats["jobs"]

    def memory(self, *args, **kwargs):
        self.memories.append(Memory(*args, **kwargs))
        return self.memories[-1]

    def region(self, size, **kwargs):
        memory = self.memory(size, **kwargs)
        return memory, memory.register(self.rpc)

    def refused(self, name, method, params=None, words=(), fds=()):
        """Checks that the call fails with the status and a sentence that contains the words, and that the connection
        stays usable."""
        with self.assertRaises(RpcError) as caught:
            self.rpc.call(method, params, fds)
        error = caught.exception
        self.assertEqual(error.name, name, error.message)
        self.assertIsInstance(error.code, int)
        self.assertLess(error.code, 0)
        for word in words:
            self.assertIn(word, error.message)
        self.assertNotIn("\n", error.message)
        self.assertIs(self.rpc.call("ping"), True)
        return error
