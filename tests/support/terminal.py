# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own: what it writes, what is typed, what is left of the terminal's settings."""
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
    """Without what moves the cursor and gives colours."""
    return _CONTROL.sub("", text)


class Terminal:
    """With it as standard input, output and error; `with` kills what still runs at the end."""

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
        """All there is by now, at the end of output."""
        while select.select([self.master], [], [], 0)[0]:
            self.output += os.read(self.master, 65536).decode("utf-8", "replace")

    def wait_for(self, words):
        """Until what comes after the words of the last call holds these; returns it up to them."""
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
        """Each screenful that was drawn, without controls."""
        self.read()
        return [plain(frame) for frame in self.output.split("\x1b[H")[1:]]

    def end(self, seconds=10):
        """The exit code, when it has ended by itself."""
        deadline = time.monotonic() + scaled(seconds)
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, f"it goes on: {self.output!r}"
            time.sleep(0.005)
        self.read()
        return self.process.returncode

    def is_as_before(self):
        """The settings: echo, lines, what keys do."""
        return termios.tcgetattr(self._slave) == self.settings

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.master)
        os.close(self._slave)
