"""Installs the PostgreSQL versions and the PgBouncer that tests want, on a Debian machine, for root; never fails.

``make prerequisites`` runs it, and so does CI. Node.js and a browser are larger: `tests/support/prerequisites.py` says
how to have them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support import postgres_versions, prerequisites

CLUSTER_SETTINGS = Path("/etc/postgresql-common/createcluster.d")
SECONDS = 300
# No questions, and no service is started: RUNLEVEL is what Debian's scripts look at.
ENVIRONMENT = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}


def main() -> None:
    packages = missing_packages()
    if packages and is_possible():
        _forbid_a_default_cluster()
        _apt_get("update")
        # One by one: a release of Debian has one or two of the versions.
        for package in packages:
            _apt_get("install", "--yes", "--no-install-recommends", package)
        postgres_versions.programs.cache_clear()
    for line in prerequisites.missing():
        print(line)  # noqa: T201


def missing_packages() -> list[str]:
    versions = [v for v in postgres_versions.SUPPORTED if postgres_versions.programs(v) is None]
    packages = [f"postgresql-{version}" for version in versions]
    return packages if prerequisites.find_pgbouncer() else [*packages, "pgbouncer"]


def is_possible() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _forbid_a_default_cluster() -> None:
    """Debian's package makes and starts a server of its own unless this file says no."""
    CLUSTER_SETTINGS.mkdir(parents=True, exist_ok=True)
    (CLUSTER_SETTINGS / "none-for-tests.conf").write_text("create_main_cluster = false\n")


def _apt_get(*arguments: str) -> None:
    try:
        subprocess.run(["apt-get", "--quiet", *arguments], env=ENVIRONMENT, capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"apt-get {' '.join(arguments)}: {error}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
