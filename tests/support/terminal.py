# SPDX-License-Identifier: Apache-2.0
"""Runs a program on a terminal of its own and gives access to its output, its input, and the terminal's settings."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

from tmad import scaled, wait_until

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def plain(text):
    """Returns the text without escape sequences that move the cursor or set colours."""
    return _CONTROL.sub("", text)


class Terminal:
    """The program has the terminal as standard input, output and error. Leaving `with` kills it if it still runs."""

    def __init__(self, command, columns=100, lines=24, **env):
        self.master, self._slave = pty.openpty()
        self.resize(columns, lines)
        self.settings = termios.tcgetattr(self._slave)
        environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.output = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=self._slave, stdout=self._slave, stderr=self._slave,
            env={**environment, "TERM": "xterm", **env}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))

    def resize(self, columns, lines):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self):
        """Returns everything up to the end of the output."""
        while select.select([self.master], [], [], 0)[0]:
            self.output += os.read(self.master, 65536).decode("utf-8", "replace")

    def wait_for(self, words):
        """Waits until the output after the last call's words contains these words. Returns the output up to them."""
        start = self._seen

        def found():
            self.read()
            return words in self.output[start:]
        try:
            wait_until(found, f"{words!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.output[start:]!r}") from None
        self._seen = self.output.index(words, start) + len(words)
        return self.output[start:self._seen]

    def frames(self):
        """Returns each screenful that was drawn, without escape sequences."""
        self.read()
        return [plain(frame) for frame in self.output.split("\x1b[H")[1:]]

    def end(self, seconds=10):
        """Waits for the program to end by itself. Returns its exit code."""
        deadline = time.monotonic() + scaled(seconds)
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, f"it goes on: {self.output!r}"
            time.sleep(0.005)
        self.read()
        return self.process.returncode

    def is_as_before(self):
        """Returns whether the terminal's settings (echo, line mode, special keys) are as before."""
        return termios.tcgetattr(self._slave) == self.settings

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)
