# SPDX-License-Identifier: Apache-2.0
"""Writes the manual: python3 proto/manual SOURCE VERSION FILE...; each FILE (client/tmactl/tmactl.1) is written there.

A page is its template (client/tmactl/tmactl.1.in), mdoc(7) in which a line @NAME ARGUMENT...@ stands for what pages.py makes
of a table or of the public header. Facts are in the tables and the header, what else there is to say in the templates.
Nothing in a page is of the day or of the machine that it was made on.
"""
import os
import re
import sys

import pages
from tables import Fault


def read_template(path, more):
    """Its lines with their numbers; those between @more NAME@ and @end@ go to more instead."""
    lines, open_name = [], None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file.read().splitlines(), 1):
            start = re.fullmatch(r"@more ([a-z_-]+)@", line)
            if start:
                open_name = start.group(1)
                more[open_name] = []
            elif line == "@end@":
                open_name = None
            elif open_name:
                more[open_name].append(line)
            else:
                lines.append((number, line))
    return lines


def tidy(lines):
    """The same without paragraph breaks where there is one anyway."""
    out = []
    for i, line in enumerate(lines):
        after = lines[i + 1] if i + 1 < len(lines) else ".Sh"
        breaks = after[:3] in (".Bl", ".Bd", ".Sh", ".Ss", ".Pp") and not after.endswith(" -compact")
        if line == ".Pp" and (breaks or out[-1][:3] in (".Sh", ".Ss", ".Pp")):
            continue
        out.append(line)
    return out


def expand(source, version, name):
    """The text of one page."""
    manual = pages.Manual(source, version)
    template, arguments = manual.template(name)
    out = []
    for number, line in read_template(os.path.join(source, template), manual.more):
        directive = re.fullmatch(r"@([a-z_]+)((?: [^@]+)?)@", line)
        if not directive:
            out.append(line)
            continue
        make = getattr(manual, "make_" + directive.group(1), None)
        if not make:
            raise Fault(f"{template}:{number}: @{directive.group(1)}@ is nothing that pages.py makes")
        out += make(*arguments, *directive.group(2).split())
    if manual.more:
        raise Fault(f"{template}: there is no {', '.join(manual.more)} to say more of")
    if name.endswith((".aliases", ".conf")):
        return "\n".join(out) + "\n"
    return f'.\\" Made from {template} and what it names; change that.\n' + "\n".join(tidy(out)) + "\n"


def main():
    source, version, *names = sys.argv[1:]
    try:
        for name in names:
            text = expand(source, version, name)
            os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
            with open(name + ".tmp", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name + ".tmp", name)
    except Fault as fault:
        sys.exit(f"manual: {fault}")


main()
