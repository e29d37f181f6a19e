# SPDX-License-Identifier: Apache-2.0
"""An off-the-shelf MessagePack-RPC client drives tmad unmodified: pynvim's."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from tmad import ENGINE, Tmad, by_engine, tensor

from pynvim.msgpack_rpc import socket_session


class Pynvim(unittest.TestCase):
    def setUp(self):
        self.tmad = Tmad()
        self.addCleanup(self.tmad.stop)
        self.session = socket_session(self.tmad.path)
        self.addCleanup(self.session.close)
        self.session.error_wrapper = Exception  # what pynvim's own Nvim object sets, too

    def test_ping(self):
        self.assertIs(self.session.request("ping"), True)

    def test_info(self):
        info = self.session.request("info")
        self.assertEqual(info["engine"], ENGINE)
        self.assertIn("float32", info["dtypes"])
        self.assertIn("transform", info["methods"])

    def test_empty_params_map(self):
        self.assertIs(self.session.request("ping", {}), True)

    def test_stats_count_requests(self):
        before = self.session.request("stats")["requests_by_method"]["ping"]
        self.session.request("ping")
        self.assertEqual(self.session.request("stats")["requests_by_method"]["ping"], before + 1)

    def test_regions_and_copy(self):
        src = self.session.request("region_create", {"size": 4096})
        dst = self.session.request("region_create", {"size": 4096})
        self.assertEqual((src["size"], src["kind"]), (4096, by_engine(cpu="memfd", cuda="cuda_fd")))
        done = self.session.request("copy", {"dst": tensor(dst["region"], [4096]),
                                             "src": tensor(src["region"], [4096])})
        self.assertEqual((done["path"], done["bytes"]), ("memcpy", 8192))
        self.assertEqual(len(self.session.request("region_list")), 2)

    def test_error_reply(self):
        with self.assertRaises(Exception) as caught:
            self.session.request("region_release", {"region": 12345})
        code, message, details = caught.exception.args[0]
        self.assertEqual((code, details["name"]), (-4, "NOT_FOUND"))
        self.assertIn("12345", message)
        self.assertIs(self.session.request("ping"), True, "the connection lives on")

    def test_unknown_notification(self):
        self.session.request("no_such_thing", {"a": 1}, async_=True)
        self.assertIs(self.session.request("ping"), True)


if __name__ == "__main__":
    tap.main()
