#!/usr/bin/env python
"""Django's manage.py, which first starts the embedded PostgreSQL unless DATABASE_URL is set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Replaces the directory of this file, from which `settings` and `shop` would be importable a second time.
sys.path[0] = str(Path(__file__).resolve().parent.parent)


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    from django.core.management import execute_from_command_line

    from testproject import databases

    databases.ensure_site_database()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
