# SPDX-License-Identifier: Apache-2.0
"""Lists the sentences of errors: those that the sources can produce, and those of proto/errors.def. A * stands for a
value."""
import os
import re
import sys

FOLDERS = ("client", "daemon", "kernels", "proto")
# Functions that take a format: the name, the index of the format argument, and the section (or the index of its
# argument).
CALLS = {"error_set": (2, 1), "client_fail": (2, 1), "client_break": (2, 1), "fail": (2, 1), "log_line": (1, 0),
         "log_about": (2, 0), "session_log": (3, 1), "session_end": (2, 1),
         "config_error": (1, "START"), "say_error": (0, "LOG"), "subuids_warn": (1, "LOG")}
START = ("daemon/config/", "daemon/loop/", "daemon/net/listener.c", "daemon/server.c", "daemon/tmad.c", "daemon/memory/devices.c", "kernels/cuda/driver/driver.c", "kernels/cpu/engine.c", "kernels/cpu/run/crew.c",
         "daemon/observe/exporter.c", "kernels/cpu/run/stream.c", "kernels/cuda/sched/scheduler.c", "kernels/cuda/sched/flight.c",
         "kernels/cuda/launch/map_cache.c", "kernels/process/child.c", "kernels/process/front.c", "kernels/process/run.c",
         "kernels/process/served.c")  # also covers errors at the start
CODES = {"EXIT_USAGE": "USAGE", "EXIT_FAILED": "FAILED", "LOG_LEVEL_ERROR": "LOG", "LOG_LEVEL_WARNING": "LOG"}


class Sentence:
    def __init__(self, at, section, text):
        self.at, self.section, self.text = at, section, text


class Entry:
    def __init__(self, section, text):
        self.section, self.text = section, text
        parts = [re.escape(part) for part in re.split(r"\*+", text)]
        self._pattern = re.compile(".*".join(parts) + r"\Z", re.S)

    def is_of(self, sentence):
        if sentence.section and self.section != sentence.section and not (
                self.section == "START" and sentence.at.startswith(START)):
            return False
        # A sentence made only of placeholders matches only such sentences.
        if not re.search(r"[a-z]{2}", self.text):
            return sentence.text == self.text
        return bool(self._pattern.match(sentence.text))


def in_table(source):
    sys.path.insert(0, os.path.join(source, "proto", "manual"))
    sys.dont_write_bytecode = True
    import errors

    class Table(errors.Errors):
        def path(self, name):
            return os.path.join(source, name)

    return [Entry(section, text) for section, _, texts in Table().situations() for text in texts]


def _texts(argument):
    """Returns the texts that a format expression can be, with conversions replaced by *; [] if it is no literal."""
    if re.search(r'"\s*:\s*"', argument):  # a choice of two texts
        return [text for part in re.split(r'(?<=")\s*:\s*(?=")', re.sub(r'^[^"]*\?\s*', "", argument)) for text in _texts(part)]
    if '"' not in argument:
        return []
    literal = r'"(?:[^"\\]|\\.)*"'
    # Macros of inttypes.h, and other names that stand for texts.
    argument = re.sub(literal + r"|\bPRI\w+|\b[A-Z_]{3,}\b",
                      lambda m: m.group() if m.group()[0] == '"' else '"llu"' if m.group().startswith("PRI") else '"%s"', argument)
    if re.sub(literal, "", argument).strip():
        raise ValueError(argument)
    whole = "".join(part[1:-1] for part in re.findall(literal, argument)).replace("\\n", " ")
    whole = re.sub(r"\\(.)", r"\1", whole)
    whole = re.sub(r"%[-+#0 ]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j)?[diouxXfgeGcsp]", "*", whole).replace("%%", "%")
    return [re.sub(r"\s+", " ", whole)]


def _calls(text):
    """Yields (name, offset, arguments) of each call of CALLS."""
    for call in re.finditer(r"\b(" + "|".join(CALLS) + r")\(", text):
        arguments, current, depth, at = [], "", 1, call.end()
        while depth:
            literal = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, at)
            if literal:
                current, at = current + literal.group(), literal.end()
                continue
            char = text[at]
            depth += (char in "([{") - (char in ")]}")
            if not depth or char == "," and depth == 1:
                arguments.append(current.strip())
                current = ""
            else:
                current += char
            at += 1
        yield call.group(1), call.start(), arguments


def in_sources(source):
    said = []
    for top in FOLDERS:
        paths = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(source, top)) for name in names]
        for path in sorted(os.path.relpath(path, source) for path in paths):
            if not path.endswith((".c", ".h")):
                continue
            with open(os.path.join(source, path), encoding="utf-8") as file:
                text = file.read()
            for call, offset, arguments in _calls(text):
                format_at, section = CALLS[call]
                if len(arguments) <= format_at:
                    continue
                if isinstance(section, int):
                    code = arguments[section]
                    if code.startswith("LOG_") or call in ("log_line", "log_about", "session_log"):
                        # Why a session has ended is also told to its client, and logged at other levels.
                        if code == "LOG_LEVEL_DEBUG" or call != "session_end" and code not in CODES:
                            continue
                    status = re.fullmatch(r"STATUS_([A-Z_]+)", code)
                    section = status.group(1) if status else "LOG" if call == "session_end" else CODES.get(code)
                at = f"{path}:{text.count(chr(10), 0, offset) + 1}"
                # A sentence made only of placeholders repeats what another function has said.
                said += [Sentence(at, section, words) for words in _texts(arguments[format_at])
                         if re.search(r"[a-z]{2}", words) or call == "error_set" and words != "*"]
    return said
