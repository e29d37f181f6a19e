# SPDX-License-Identifier: Apache-2.0
"""Runs the pytest cases of a file and reports them as TAP, which automake's driver reads.

pytest_tap.py FILE [WORD]... runs all cases, or those whose name contains one of the words."""
import os
import sys

import pytest


class Tap:
    """Prints a line for each case. It covers the setup, the case and the teardown, and reports whichever failed
    first."""

    def __init__(self, stream):
        self._stream = stream
        self._broken = 0  # number of files that could not be read
        self._skipped = ""  # why a whole file was skipped
        self._seconds = 0.0
        self._outcome = None  # outcome of the running case

    def _print(self, line):
        print(line, file=self._stream, flush=True)

    def _explain(self, text):
        for line in text.splitlines():
            self._print("# " + line)

    @staticmethod
    def _reason(report):
        """Returns why the case was skipped."""
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        return " ".join(text.removeprefix("Skipped: ").split())

    def pytest_collectreport(self, report):
        if report.failed:
            self._broken += 1
            self._print(f"not ok - {report.nodeid} can be read")
            self._explain(str(report.longrepr))
        elif report.skipped:
            self._skipped = self._reason(report)

    def pytest_collection_finish(self, session):
        count = len(session.items) + self._broken
        self._print(f"1..{count}" + (f" # SKIP {self._skipped}" if count == 0 and self._skipped else ""))

    def pytest_runtest_logreport(self, report):
        self._seconds = report.duration + (self._seconds if report.when != "setup" else 0)
        if self._outcome is None and (report.failed or report.skipped or report.when == "teardown"):
            self._outcome = report
        if report.when == "teardown":
            self._report(self._outcome)
            self._outcome = None

    def _report(self, report):
        name = f"{report.nodeid.partition('::')[2]} ({self._seconds:.1f} s)".replace("#", " ")
        if report.failed:
            self._print(f"not ok - {name}")
            self._explain(report.longreprtext)
            for title, text in report.sections:
                self._explain(f"---- {title}\n{text}")
        elif hasattr(report, "wasxfail"):
            self._print(f"{'ok' if report.passed else 'not ok'} - {name} # TODO {report.wasxfail}")
        elif report.skipped:
            self._print(f"ok - {name} # SKIP {self._reason(report)}")
        else:
            self._print(f"ok - {name}")


def main(path, *words):
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # Output of programs is not TAP, so it goes to standard error.
    with open(os.devnull, "w", encoding="utf-8") as sys.stdout:  # drops pytest's own report
        chosen = ["-k", " or ".join(words)] if words else []
        code = pytest.main([path, "--rootdir", os.path.dirname(os.path.abspath(path)), "-p", "no:cacheprovider",
                            "--continue-on-collection-errors",
                            "--capture=sys",  # a sanitizer's report, with which the process ends, would be lost
                            *chosen], plugins=[Tap(stream)])
        sys.stdout = sys.__stdout__
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else int(code)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
