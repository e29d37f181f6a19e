# SPDX-License-Identifier: Apache-2.0
"""Shell completion: what is installed is what tmactl prints, and the shells themselves complete by it."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tap
from terminal import Terminal, plain
from tmad import SOURCE, scaled, tmactl

FILES = {"bash": "tmactl", "zsh": "_tmactl", "fish": "tmactl.fish"}

# What stands on the command line, and what may come of its last word: these, or at least those of a set.
ROWS = (
    ("tmactl expl", ["explain"]), ("tmactl re", ["regions"]), ("tmactl --socket /x to", ["top"]),
    ("tmactl top --sor", ["--sort"]), ("tmactl --vers", ["--version"]), ("tmactl copy --mem", ["--memory"]),
    ("tmactl copy --mode sy", ["symmetric"]), ("tmactl copy --mode=sy", ["symmetric"]),
    ("tmactl explain --engine cu", ["cuda"]), ("tmactl explain --dtype bf", ["bfloat16"]),
    ("tmactl bench --kind transp", ["transpose"]), ("tmactl completion z", ["zsh"]), ("tmactl help ben", ["bench"]),
    ("tmactl copy data", ["data.npy"]), ("tmactl --color nev", ["never"]), ("tmactl info --per", []),
    ("tmactl top --color=al", ["always"]),
)


def path_of(shell):
    return os.path.join(SOURCE, "client", "tmactl", "completion", FILES[shell])


class Completion(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="tmactl-completion-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        for name in ("data.npy", "data.txt"):
            with open(os.path.join(self.directory, name), "wb"):
                pass

    def need(self, shell):
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not installed")

    def run_shell(self, *command):
        done = subprocess.run(command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", timeout=scaled(60), check=False,
                              env={**os.environ, "HOME": self.directory, "XDG_CONFIG_HOME": self.directory})
        self.assertEqual(done.stderr, "", command)
        return done.stdout

    def test_the_files_are_what_tmactl_prints(self):
        for shell in FILES:
            with self.subTest(shell=shell), open(path_of(shell), encoding="utf-8") as file:
                self.assertEqual(tmactl("completion", shell).stdout, file.read(), "make completions")

    def test_bad_usage(self):
        for args in ([], ["tcsh"], ["bash", "zsh"]):
            done = tmactl("completion", *args)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("zsh", done.stderr)

    def test_bash(self):
        self.need("bash")
        # As readline splits it: at blanks, and at the equals sign, which is a word.
        script = ("source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _tmactl; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        for line, want in ROWS:
            with self.subTest(line=line):
                words = line.replace("=", " = ").split(" ")
                got = self.run_shell("bash", "--norc", "-c", script, "bash", path_of("bash"), *words)
                self.assertEqual(got.split(), want)

    def test_fish(self):
        self.need("fish")
        for line, want in ROWS:
            with self.subTest(line=line):
                got = self.run_shell("fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
                                     path_of("fish"), line)
                got = [row.split("\t")[0].split("=")[-1] for row in got.splitlines()]
                # Of files the .npy ones come first, and others after them.
                self.assertEqual(got[:1] if "data" in line else got, want)

    def test_zsh(self):
        """As at a prompt: one word that fits is put in whole."""
        self.need("zsh")
        environment = {"HOME": self.directory, "ZDOTDIR": self.directory, "PROMPT_EOL_MARK": ""}
        with Terminal(["zsh", "-f", "-i"], columns=200, **environment) as zsh:
            zsh.type(f"cd {self.directory}; autoload -Uz compinit; compinit -D -u; source {path_of('zsh')}; "
                     "zstyle ':completion:*' menu no; unsetopt list_beep; PS1='re''ady> '\n")
            zsh.wait_for("ready> ")
            for line, want in ROWS:
                with self.subTest(line=line):
                    # Between quotes, the line is what echo is given.
                    zsh.type(line + "\t\x01echo 'got: \x05'\n")
                    zsh.wait_for("\ngot: ")
                    got = plain(zsh.wait_for("\r")).rstrip("\r")
                    zsh.wait_for("ready> ")
                    start = line[:max(line.rindex(" "), line.rfind("=")) + 1]
                    self.assertEqual(got.rstrip("= "), start + want[0] if want else line)


if __name__ == "__main__":
    tap.main()
