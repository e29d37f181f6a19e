"""Writes the manual: python3 proto/manual SOURCE VERSION FILE...; each FILE (client/tmactl.1) is written there.

A page is its template (client/tmactl.1.in), mdoc(7) in which a line @NAME ARGUMENT...@ stands for what pages.py makes
of a table or of the public header. Facts are in the tables and the header, what else there is to say in the templates.
Nothing in a page is of the day or of the machine that it was made on.
"""
import os
import re
import sys

import pages
from tables import Fault


def expand(source, version, name):
    """The text of one page."""
    manual = pages.Manual(source, version)
    template, arguments = manual.template(name)
    with open(os.path.join(source, template), encoding="utf-8") as file:
        lines = file.read().splitlines()
    out = []
    for number, line in enumerate(lines, 1):
        directive = re.fullmatch(r"@([a-z_]+)((?: [^@]+)?)@", line)
        if not directive:
            out.append(line)
            continue
        make = getattr(manual, "make_" + directive.group(1), None)
        if not make:
            raise Fault(f"{template}:{number}: @{directive.group(1)}@ is nothing that pages.py makes")
        out += make(*arguments, *directive.group(2).split())
    if name.endswith(".aliases"):
        return "\n".join(out) + "\n"
    return f'.\\" Made from {template} and what it names; change that.\n' + "\n".join(out) + "\n"


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
