"""Reads the pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
DOCS = CHECKOUT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def headings(text: str) -> list[str]:
    """Return the code names that have a heading of their own: ### `NAME`."""
    return re.findall(r"^#+ `([^`]+)`$", text, flags=re.MULTILINE)


def sections(text: str) -> dict[str, str]:
    """Return the text under each such heading, up to the next heading of any kind."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {name.strip("`"): body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name[0] == "`"}


def code_words(text: str) -> list[str]:
    """Return all texts in backquotes."""
    return re.findall(r"`([^`\n]+)`", text)
