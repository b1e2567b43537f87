"""Django's migrations of the worker schema. What they run is in ``sql/ddl`` and ``operations``."""

from __future__ import annotations
