# SPDX-License-Identifier: Apache-2.0
"""Makes the page of tmactl from its commands and options (client/tmactl/commands.def)."""
import re

import mdoc
import tables
from tables import Fault

COMMANDS = "client/tmactl/commands.def"


class Commands:
    def commands(self):
        """Returns ({group: (title, [option])}, {command: {...}}), where an option is (name, letter, argument, doc)."""
        groups, commands, open_table = {}, {}, None
        for row in tables.read(self.path(COMMANDS), GROUP=2, COMMAND=4, OPTION=7, USES=2, TEXT=2, EXAMPLE=3, END=1, WORDS=2):
            table, rest = row.arguments[0], row.arguments[1:]
            if row.name in ("GROUP", "COMMAND"):
                open_table = table
            elif row.name != "WORDS" and table != open_table:
                raise Fault(f"{row.path}:{row.line}: {table} is not the table that is open, {open_table}")
            if row.name == "GROUP":
                groups[table] = (rest[0], [])
            elif row.name == "COMMAND":
                commands[table] = {"operands": rest[0], "summary": rest[2], "options": [], "uses": [], "texts": [],
                                   "examples": []}
            elif row.name == "OPTION":
                letter = "" if rest[2] == "0" else rest[2].strip("'")
                option = (rest[1], letter, rest[3], rest[5])
                (groups[table][1] if table in groups else commands[table]["options"]).append(option)
            elif row.name == "USES":
                commands[table]["uses"].append(rest[0])
            elif row.name == "TEXT":
                commands[table]["texts"].append(rest[0])
            elif row.name == "EXAMPLE":
                commands[table]["examples"].append((rest[0], rest[1]))
        return groups, commands

    @staticmethod
    def _options(options):
        out = [".Bl -tag -width Ds"]
        for name, letter, argument, doc in options:
            head = (f"Fl {letter} , " if letter else "") + f"Fl -{name}"
            out.append(f".It {head}" + (f" Ns = Ns Ar {mdoc.argument(argument)}" if argument else ""))
            out += mdoc.words(mdoc.sentence(doc))
        return out + [".El"]

    @staticmethod
    def _operands(operands):
        """Returns operands such as "SRC DST" or "[FILE]" as macros of mdoc, to be appended to a line of macros."""
        parts = []
        for word in operands.split():
            optional = re.fullmatch(r"\[(.*)\]", word)
            parts.append(f"Oo Ar {optional.group(1)} Oc" if optional else f"Ar {word}")
        return " " + " ".join(parts) if parts else ""

    def make_commands(self, *_):
        groups, commands = self.commands()
        out = []
        for name, command in sorted(commands.items()):
            takes_options = command["options"] or command["uses"]
            head = f".Cm {name}{self._operands(command['operands'])}" + (" Oo Ar option ... Oc" if takes_options else "")
            out += [f".Ss {name}", head, ".Pp", *mdoc.words(command["summary"])]
            for text in command["texts"]:
                out += [".Pp", *mdoc.words(text)]
            used = [option for group in command["uses"] for option in groups[group][1]]
            if takes_options:
                out += self._options(command["options"] + used)
        return out

    def make_common_options(self, *_):
        return self._options(self.commands()[0]["common"][1])

    def make_examples(self, *_):
        out = []
        for _, command in sorted(self.commands()[1].items()):
            for line, doc in command["examples"]:
                out += [".Pp", *mdoc.words(mdoc.sentence(doc).rstrip(".") + ":"), *mdoc.literal([line])]
        return out[1:] if out else out
