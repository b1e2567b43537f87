"""``Unsupported``: the reason why a periodic task cannot be imported."""

from __future__ import annotations


class Unsupported(Exception):  # noqa: N818 - it names a result of the import, not a mistake
    """Raised with the reason why a periodic task cannot be imported."""
