"""The only code of this package that executes SQL."""

from __future__ import annotations
