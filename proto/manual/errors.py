# SPDX-License-Identifier: Apache-2.0
"""Makes the page of errors from the statuses (proto/status.def) and the error messages (proto/errors.def)."""
import mdoc
import tables
from tables import Fault

STATUSES = "proto/status.def"
ERRORS = "proto/errors.def"
OTHERS = ("START", "LOG", "USAGE", "FAILED")  # sections of errors that have no status


class Errors:
    def statuses(self):
        """Returns [(name, code, meaning, remedy)]."""
        return [(row.arguments[0], int(row.arguments[1]), *row.arguments[2:])
                for row in tables.read(self.path(STATUSES), STATUS=4, LIBRARY_STATUS=4)]

    def situations(self):
        """Returns [(section, remedy, [message])]."""
        sections = [status[0] for status in self.statuses()] + list(OTHERS)
        rows = tables.read(self.path(ERRORS), SAYS=None)
        for row in rows:
            if row.arguments[0] not in sections:
                raise Fault(f"{row.path}:{row.line}: {row.arguments[0]} is no section: {', '.join(sections)}")
            if len(row.arguments) < 3:
                raise Fault(f"{row.path}:{row.line}: a section, a remedy and at least one sentence")
        return [(row.arguments[0], row.arguments[1], row.arguments[2:]) for row in rows]

    def _said(self, section, general):
        out = []
        for of, remedy, sentences in self.situations():
            if of != section:
                continue
            out += [".Pp"] if out else []
            out += [f".It Dq {mdoc.argument(text.replace('**', '*'))}" for text in sentences]
            out += mdoc.words(remedy or general)
        return [".Pp", ".Bl -tag -width Ds -compact", *out, ".El"] if out else []

    def make_statuses(self, *_):
        out = []
        for name, code, meaning, remedy in self.statuses():
            out += [f".Ss {name} ({code})", *mdoc.words(mdoc.sentence(meaning)), ".Pp", *mdoc.words(remedy)]
            out += self._said(name, "See above.")
        return out

    def make_said(self, section):
        return self._said(section, "The message says what to change.")
