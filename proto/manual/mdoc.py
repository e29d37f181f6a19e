# SPDX-License-Identifier: Apache-2.0
"""Writes mdoc(7): plain words as text lines, paragraphs and literal displays, and arguments of macros."""
import re
import textwrap

_CODE = re.compile(r"`([^`]+)`|\b(tma_[a-z0-9_]+)\b(?:\(\))?|(?<![\w/.$-])(--?[a-z][a-z-]*)(?=[\s,.;:=)]|$)|(\$[A-Z_]{3,})")


def escape(text):
    """Escapes the characters of a text that are special in roff."""
    return text.replace("\\", "\\e")


def _fonts(text):
    """Sets names of functions, options and variables, and what is between backquotes, in bold."""
    def bold(match):
        code = match.group(1) or match.group(2) or match.group(3) or match.group(4)
        call = "()" if match.group().endswith("()") else ""
        return "\\fB" + escape(code).replace("-", "\\-") + "\\fP" + call
    parts, at = [], 0
    for match in _CODE.finditer(text):
        parts += [escape(text[at:match.start()]), bold(match)]
        at = match.end()
    return "".join(parts) + escape(text[at:])


def words(text):
    """Returns a paragraph as text lines. Each sentence starts a line, no line is long, and none looks like a macro."""
    lines = []
    for sentence in re.split(r"(?<=[A-Za-z0-9)\"'`][.!?])\s+(?=[A-Z`\"*-])", " ".join(text.split())):
        lines += textwrap.wrap(_fonts(sentence), 78, break_long_words=False, break_on_hyphens=False)
    return ["\\&" + line if line[0] in ".'" else line for line in lines]


def literal(lines, tab=8, offset=" -offset indent"):
    """Returns the lines as a literal display."""
    body = [re.sub(r"^(?=[.'])", r"\\&", escape(line.expandtabs(tab)).replace("-", "\\-")) for line in lines]
    return [f".Bd -literal{offset}", *body, ".Ed"]


def prose(text):
    """Returns a text as paragraphs, which blank lines separate. Lines indented by four spaces or a tab are literal."""
    out, first = [], True
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        runs = []
        for line in block.split("\n"):
            kind = line.startswith(("    ", "\t"))
            if not runs or runs[-1][0] != kind:
                runs.append((kind, []))
            runs[-1][1].append(line)
        for kind, lines in runs:
            if kind:
                out += literal(textwrap.dedent("\n".join(lines)).split("\n"))
            else:
                if not first:
                    out.append(".Pp")
                out += words("\n".join(lines))
            first = False
    return out


def sentence(text):
    """Makes a sentence of the few words in a table: it gets a capital letter and a full stop."""
    text = text.strip()
    # A name of a program's, such as tma_copy, keeps its small letter.
    if re.match(r"[a-z]+[ ,;:.-]|[a-z]+$", text):
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", ":", "?", "!")) else text + "."


def argument(text):
    """Returns the text as one argument of a macro."""
    text = escape(text).replace('"', "\\(dq")
    if re.fullmatch(r"[.,:;()\[\]?!|]", text) or re.fullmatch(r"[A-Z][a-z]|\.", text):
        text = "\\&" + text
    return f'"{text}"' if not text or re.search(r"\s", text) else text
