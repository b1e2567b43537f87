"""The setting ADMINS, in the form that the installed Django takes."""

from __future__ import annotations

from typing import Any

import django


def admins(address: str) -> list[Any]:
    return [address] if django.VERSION >= (6, 0) else [("Ann", address)]
