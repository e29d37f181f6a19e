# SPDX-License-Identifier: Apache-2.0
"""What the tests of tmactl share: a service for each class, a directory for each test, and a file that a refused
command must leave unchanged."""
import os
import shutil
import tempfile
import unittest

from tmad import Tmad

KEEP = b"what was there before"


class TmactlCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tmad = Tmad()
        cls.addClassCleanup(cls.tmad.stop)

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmactl-test-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.dst = self.file("out.npy")

    def file(self, name, data=None):
        """Returns the path of a file in the test's directory. Writes data into it, if given."""
        path = os.path.join(self.directory, name)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
        return path
