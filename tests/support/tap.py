# SPDX-License-Identifier: Apache-2.0
"""Runs a file's unittest cases and reports them as TAP, which automake's driver reads."""
import sys
import time
import unittest

MAX_FAULTS = 5  # faults of one test that are shown in full


class _Result(unittest.TestResult):
    def __init__(self, stream):
        super().__init__()
        self._stream = stream
        self._started = 0.0
        self._faults = 0  # faults of the running test

    def _line(self, outcome, test, note=""):
        seconds = time.monotonic() - self._started
        name = test.id().replace("__main__.", "").replace("#", " ")
        print(f"{outcome} - {name} ({seconds:.1f} s){note}", file=self._stream, flush=True)

    def _fault(self, test, err):
        if self._faults == 0:
            self._line("not ok", test)
        self._faults += 1
        if self._faults > MAX_FAULTS:
            return
        for line in self._exc_info_to_string(err, test).splitlines():
            print("# " + line, file=self._stream, flush=True)

    def startTest(self, test):
        super().startTest(test)
        self._started = time.monotonic()
        self._faults = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        if self._faults == 0:
            self._line("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._line("ok", test, f" # SKIP {reason}")

    def addError(self, test, err):
        super().addError(test, err)
        self._fault(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._fault(test, err)

    def addSubTest(self, test, subtest, err):
        """Names the rows of a table that fail; the test counts once."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._fault(test, err)
            print("# in " + subtest.id(), file=self._stream, flush=True)


def main():
    """Runs the cases of the main module, or those whose name contains one of the arguments."""
    loader = unittest.TestLoader()
    if len(sys.argv) > 1:
        loader.testNamePatterns = [f"*{word}*" for word in sys.argv[1:]]
    suite = loader.loadTestsFromModule(sys.modules["__main__"])
    print(f"1..{suite.countTestCases()}", flush=True)
    result = _Result(sys.stdout)
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() else 1)
