"""Errors with their tracebacks, so that the eye finds the own code first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

LONGEST_ERROR = 100_000

_FRAME = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib(?:64)?/python\d|<frozen |node_modules|node:internal")
_BEGINNING = "Traceback (most recent call last):"


@dataclass(slots=True)
class Frame:
    """A call: where, and the code there."""

    file: str
    line: str
    function: str
    code: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.code)

    @property
    def is_library(self) -> bool:
        return bool(_LIBRARY.search(self.file))


@dataclass(slots=True)
class Block:
    """Neighbouring parts of one kind: plain text, own frames, or frames of libraries."""

    kind: str
    text: str = ""
    frames: list[Frame] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trace:
    """What went wrong in one line, then all the rest."""

    summary: str
    blocks: list[Block]


def read(error: str) -> Trace:
    """Take an error apart; whatever is no traceback stays the text that it is."""
    text = error[:LONGEST_ERROR]
    summary, _, rest = text.partition("\n")
    blocks = list(_blocks(rest.strip("\n").split("\n"))) if rest.strip() else []
    # A traceback ends with what stands at the top already.
    if blocks and blocks[-1].kind == "text" and blocks[-1].text.strip() == summary.strip():
        blocks.pop()
    return Trace(summary, blocks)


def _blocks(lines: list[str]) -> Iterator[Block]:
    block: Block | None = None
    for line in lines:
        found = _FRAME.fullmatch(line)
        if found:
            frame = Frame(found["file"], found["line"], found["function"] or "")
            kind = "library" if frame.is_library else "own"
            if block is None or block.kind != kind:
                if block is not None:
                    yield block
                block = Block(kind)
            block.frames.append(frame)
        elif block is not None and block.frames and line.startswith("    "):
            block.frames[-1].code.append(line[4:])
        elif line.strip() != _BEGINNING:
            if block is None or block.kind != "text":
                if block is not None:
                    yield block
                block = Block("text")
            block.text += line + "\n"
    if block is not None:
        yield block
