# SPDX-License-Identifier: Apache-2.0
"""Writes the manual: python3 proto/manual SOURCE VERSION FILE...

SOURCE is the source tree, VERSION that of tmad. Each FILE, such as client/tmactl/tmactl.1, is written to that path.

A page is made from its template below SOURCE (client/tmactl/tmactl.1.in). This is mdoc(7) in which a line
@NAME ARGUMENT...@ is replaced by what pages.py makes of a table or of the public header. Facts belong in the tables
and the header, all other text in the templates. A page does not depend on the day or the machine on which it is made.
"""
import os
import re
import sys

import pages
from tables import Fault


def read_template(path, more):
    """Returns the template's lines with their numbers. Lines between @more NAME@ and @end@ go to more[NAME] instead."""
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
    """Returns the lines without those breaks (.Pp) that stand beside another break between paragraphs."""
    out = []
    for i, line in enumerate(lines):
        after = lines[i + 1] if i + 1 < len(lines) else ".Sh"
        breaks = after[:3] in (".Bl", ".Bd", ".Sh", ".Ss", ".Pp") and not after.endswith(" -compact")
        if line == ".Pp" and (breaks or out[-1][:3] in (".Sh", ".Ss", ".Pp")):
            continue
        out.append(line)
    return out


def expand(source, version, name):
    """Returns the text of the page with this name."""
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
