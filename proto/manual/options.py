# SPDX-License-Identifier: Apache-2.0
"""Makes lists of tmad's options (daemon/config/options.def) and limits (daemon/config/limits.def), for the command line
and for tmad.conf, and of its methods (proto/schema.def).

In a template, a line "@more NAME@" starts further text about an option or limit. The text ends at the next such line,
or at "@end@". It must come before the list that has the option or limit.
"""
import re
import textwrap

import mdoc
import tables

OPTIONS = "daemon/config/options.def"
LIMITS = "daemon/config/limits.def"
SCHEMA = "proto/schema.def"


def dashed(name):
    return name.replace("_", "-")


def _split(doc):
    """Splits "what moves the bytes [auto: cuda where it opens, else cpu]" into text and default (None: none)."""
    match = re.fullmatch(r"(.*?)(?: \[([^\[]*)\])?", doc)
    return match.group(1), match.group(2)


def _setting(name, value, text):
    """Returns the lines of a setting that is commented out, after a description."""
    return textwrap.wrap(text, 117, initial_indent="# ", subsequent_indent="# ") + [f"#{name} = {value}", ""]


class Options:
    def options(self):
        """Returns [(name, argument, what it does, default, whether the file may have it, whether reloads apply it)]."""
        rows = tables.read(self.path(OPTIONS), OPTION=6)
        return [(row.arguments[1], row.arguments[2], *_split(row.arguments[3]), row.arguments[4] == "FILE",
                 row.arguments[5] == "RELOAD") for row in rows]

    def limits(self):
        """Returns [(name, least value, default, what is limited)]."""
        return [(row.arguments[0], int(row.arguments[1]), int(row.arguments[2]), row.arguments[3])
                for row in tables.read(self.path(LIMITS), LIMIT=4)]

    def _more(self, name):
        return self.more.pop(name, [])

    def make_options(self, *_):
        out = [".Bl -tag -width Ds"]
        for name, argument, doc, default, _, _ in self.options():
            head = f".It Fl -{name}"
            out.append(head + (f" Ns = Ns Ar {mdoc.argument(argument)}" if argument else ""))
            out += mdoc.words(mdoc.sentence(doc))
            if default:
                out += mdoc.words(mdoc.sentence(f"Default: {default}"))
            out += self._more(name)
        return out + [".El"]

    def make_keys(self, *_):
        out = [".Bl -tag -width Ds"]
        for name, argument, doc, default, in_file, by_reload in self.options():
            if not in_file:
                continue
            out.append(f".It Ic {name} Ns = Ns Ar {mdoc.argument(argument)}")
            out += mdoc.words(mdoc.sentence(doc))
            if default:
                out += mdoc.words(mdoc.sentence(f"Default: {default}"))
            out += mdoc.words("A reload applies it." if by_reload else "It takes effect at a restart.")
        return out + [".El"]

    def make_file_options(self, *examples):
        """Returns the options in the installed tmad.conf, commented out. examples (NAME=VALUE) replace defaults."""
        examples = dict(example.split("=", 1) for example in examples)
        out = []
        for name, _, doc, default, in_file, by_reload in self.options():
            if in_file:
                value = examples.get(name) or re.match(r"[a-z]+", default).group()
                out += _setting(name, value, f"{doc} [{default}]" + ("" if by_reload else "; takes effect at a restart"))
        return out

    def make_file_limits(self, *examples):
        examples = dict(example.split("=", 1) for example in examples)
        return [line for name, _, default, doc in self.limits()
                for line in _setting(name, examples.get(name, default), doc)]

    def make_limit_options(self, *_):
        return self._limits(lambda name: f".It Fl -{dashed(name)} Ns = Ns Ar N")

    def make_limit_keys(self, *_):
        return self._limits(lambda name: f".It Ic {name} Ns = Ns Ar N")

    def _limits(self, head):
        out = [".Bl -tag -width Ds"]
        for name, least, default, doc in self.limits():
            out += [head(name), *mdoc.words(mdoc.sentence(doc))]
            machine = default == 0 and least > 0
            out += mdoc.words(f"{least} or more." if machine else f"Default: {default}; {least} or more.")
            out += self._more(name)
        return out + [".El"]

    def make_methods(self, *_):
        rows = tables.read(self.path(SCHEMA), MESSAGE=2, FIELD=6, NESTED=6, GROUP=2, GROUP_OF=3, END=1, METHOD=8)
        out = [".Bl -tag -width region_register -compact"]
        for row in rows:
            if row.name == "METHOD":
                out += [f".It Ic {row.arguments[0]}", *mdoc.words(row.arguments[-1])]
        return out + [".El"]
