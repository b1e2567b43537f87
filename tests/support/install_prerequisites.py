"""Installs the PostgreSQL versions, PgBouncer, Redis and promtool, as root on Debian. It never fails.

``make prerequisites`` and CI run it. It does not install Node.js and a browser, which are large:
`tests/support/prerequisites.py` says how to install them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import postgres_versions, prerequisites

CLUSTER_SETTINGS = Path("/etc/postgresql-common/createcluster.d")
PROMTOOL = Path("/usr/local/bin/promtool")
SECONDS = 300
# Ask no questions, and start no service: the scripts of Debian read RUNLEVEL.
ENVIRONMENT = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}


def main() -> None:
    packages = missing_packages()
    if (packages or not prerequisites.find_promtool()) and is_possible():
        _forbid_a_default_cluster()
        _apt_get("update")
        if not prerequisites.find_promtool():
            _install_promtool()
        # Separately, because a release of Debian has only some of the versions.
        for package in packages:
            _apt_get("install", "--yes", "--no-install-recommends", package)
        postgres_versions.programs.cache_clear()
    for line in prerequisites.missing():
        print(line)  # noqa: T201


def missing_packages() -> list[str]:
    versions = [v for v in postgres_versions.SUPPORTED if postgres_versions.programs(v) is None]
    packages = [f"postgresql-{version}" for version in versions]
    if not prerequisites.find_pgbouncer():
        packages.append("pgbouncer")
    # Only the benchmarks need it, to measure queues that keep their jobs in it.
    if shutil.which("redis-server") is None:
        packages.append("redis-server")
    return packages


def is_possible() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _forbid_a_default_cluster() -> None:
    """Keep the packages of Debian from creating and starting a server."""
    CLUSTER_SETTINGS.mkdir(parents=True, exist_ok=True)
    (CLUSTER_SETTINGS / "none-for-tests.conf").write_text("create_main_cluster = false\n")


def _install_promtool() -> None:
    """Take the program out of the package, which would also install and start a server."""
    with TemporaryDirectory() as directory:
        _apt_get("download", "prometheus", cwd=directory)
        for package in Path(directory).glob("prometheus_*.deb"):
            subprocess.run(["dpkg", "-x", str(package), directory], check=False, timeout=SECONDS)
            shutil.copy(Path(directory, "usr", "bin", "promtool"), PROMTOOL)


def _apt_get(*arguments: str, cwd: str | None = None) -> None:
    command = ["apt-get", "--quiet", *arguments]
    try:
        subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=SECONDS, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"apt-get {' '.join(arguments)}: {error}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
