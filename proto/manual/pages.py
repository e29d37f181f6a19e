# SPDX-License-Identifier: Apache-2.0
"""Makes what replaces the lines @NAME ARGUMENT...@ of a template: each method make_NAME returns lines of mdoc."""
import os
import re

import commands
import errors
import header
import mdoc
import options
import tables
from tables import Fault

GROUPS = "client/tmaclient.groups"  # rows of the library's pages: title of the group in the header, name, summary
EXAMPLES = "client/examples"  # programs that pages show, each after the text of the comment that opens it


class Manual(commands.Commands, errors.Errors, options.Options):
    def __init__(self, source, version):
        self.source, self.version = source, version
        self.more = {}  # further lines of the template about an option or limit, by its name

    def path(self, name):
        return os.path.join(self.source, name)

    def template(self, name):
        """Returns the template of a page, and the arguments that its directives get before their own."""
        page = re.fullmatch(r"client/(tmaclient-[a-z]+)\.3", name)
        if page:
            return "client/tmaclient-group.3.in", [page.group(1)]
        return name + ".in", []

    def make_os(self, *_):
        return [f'.Os "tmad {self.version}"']

    # ---- The library -------------------------------------------------------------------------------------

    def groups(self):
        """Returns (the header's first comment, {page: (group, summary)}). Groups and pages must match."""
        intro, groups = header.read(self.path("client/tmaclient.h"))
        rows = {row.arguments[0]: row for row in self._rows("PAGE")}
        for group in groups:
            if group.title not in rows:
                raise Fault(f"{GROUPS}: the header's group {group.title!r} has no page")
        titles = [group.title for group in groups]
        for title, row in rows.items():
            if title not in titles:
                raise Fault(f"{row.path}:{row.line}: the header has no group {title!r}")
        return intro, {rows[group.title].arguments[1]: (group, rows[group.title].arguments[2]) for group in groups}

    def _rows(self, name):
        return [row for row in tables.read(self.path(GROUPS), PAGE=3, EXAMPLE=2) if row.name == name]

    def make_header(self, *_):
        """Returns the header's first comment without its title and the line that compiles a program."""
        return mdoc.prose(self.groups()[0].split("\n\n", 2)[2])

    def make_pages(self, *_):
        """Lists the library's pages with their functions."""
        out = [".Bl -tag -width Ds"]
        for page, (group, summary) in self.groups()[1].items():
            out += [f".It Xr {page} 3", *mdoc.words(mdoc.sentence(summary))]
            names = [f".Fn {function.name}" for function in group.functions]
            out += [name + " ," for name in names[:-1]] + [names[-1] + " ."]
        return out + [".El"]

    def make_aliases(self, *_):
        return [f"{function.name} {page}" for page, (group, _) in self.groups()[1].items()
                for function in group.functions]

    def make_title(self, page):
        return [f".Dt {page.upper()} 3"]

    def make_name(self, page):
        group, summary = self.groups()[1][page]
        names = [page] + [function.name for function in group.functions]
        return [f".Nm {name} ," for name in names[:-1]] + [f".Nm {names[-1]}", f".Nd {summary}"]

    def make_synopsis(self, page):
        out = []
        for function in self.groups()[1][page][0].functions:
            out += [f".Ft {mdoc.argument(function.result)}", f".Fo {function.name}"]
            out += [f".Fa {mdoc.argument(parameter)}" for parameter in function.parameters] or [".Fa void"]
            out.append(".Fc")
        return out

    def make_description(self, page):
        out = []
        for entry in self.groups()[1][page][0].entries:
            out += self._entry(entry)
        return out

    def _entry(self, entry):
        if entry.functions:
            return self._functions(entry)
        words = mdoc.prose(entry.text) if entry.text else []
        opaque = [kind for kind in entry.types if re.match(r"typedef struct (\w+) \1;|struct \w+;", kind)]
        plain = [kind for kind in entry.types if kind not in opaque]
        types = mdoc.literal("\n".join(plain).split("\n")) if plain else []
        return [".Pp", *words, *types] if words or types else []

    def _functions(self, entry):
        noted = any(function.note for function in entry.functions)
        shared = mdoc.prose(entry.text) if entry.text else []
        out = ([".Pp", *shared] if noted else []) + [".Bl -tag -width Ds"]
        for function in entry.functions:
            out.append(f".It Fn {function.name}")
            if function.note:
                out += mdoc.words(mdoc.sentence(function.note))
        return out + ([] if noted else shared) + [".El"]

    def make_programs(self, page):
        """Returns the section EXAMPLES of a page, or no lines if the page has no examples."""
        rows = self._rows("EXAMPLE")
        for row in rows:
            if row.arguments[0] not in self.groups()[1]:
                raise Fault(f"{row.path}:{row.line}: there is no page {row.arguments[0]!r}")
        names = [row.arguments[1] for row in rows if row.arguments[0] == page]
        return [line for i, name in enumerate(names)
                for line in ([".Pp"] if i else [".Sh EXAMPLES"]) + self.make_program(name)]

    def make_program(self, name):
        path = f"{EXAMPLES}/{name}.c"
        try:
            with open(self.path(path), encoding="utf-8") as file:
                words, code = header.opening(file.read())
        except (OSError, ValueError) as why:
            raise Fault(f"{path}: {why}") from None
        # The comment before the display tells the test that compiles examples where one begins.
        return [*mdoc.words(words), '.\\" example', *mdoc.literal(code.split("\n"), tab=4, offset="")]

    def make_other_pages(self, page):
        names = ["tmactl 1", "tmaclient 3"] + [f"{name} 3" for name in self.groups()[1] if name != page]
        names = sorted(names, key=lambda name: (name[-1], name)) + ["tmad-errors 7", "tmad 8"]
        return [f".Xr {name} ," for name in names[:-1]] + [f".Xr {names[-1]}"]

    def make_see_pages(self, *_):
        return [f".Xr {name} 3 ," for name in sorted(self.groups()[1])]
