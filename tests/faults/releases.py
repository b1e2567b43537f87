"""The last release of this package, built from the repository, for the rehearsal of an upgrade."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from pathlib import Path

from django_graphile_worker import __version__
from tests.faults.processes import CHECKOUT

# A tag or a commit to take instead of the last release.
UPGRADE_FROM = "UPGRADE_FROM"
SCHEMA = ("django_graphile_worker/sql/ddl", "django_graphile_worker/migrations")
NEEDED = ("django_graphile_worker", "testproject", "tests")
# The version of the old code, where it has the version of this one: before the first release all commits have the same.
EARLIER_VERSION = "0.0.1"


class NoReleaseError(Exception):
    """There is no earlier version to upgrade from; the message says why."""


def last_release() -> str:
    """Return the newest tag of another version than this one, among the ancestors of the checkout.

    Until there is a tag: the commit that made the schema as it is now. Earlier schemas have no way to this one, because
    their migrations were changed in place, so that code and this code share a schema as two releases do.
    """
    if named := os.environ.get(UPGRADE_FROM):
        return named
    if not (CHECKOUT / ".git").exists():
        raise NoReleaseError("this is not a checkout of the repository")
    tags = _git("tag", "--merged", "HEAD", "--list", "v*", "--sort=-version:refname").split()
    if earlier := [tag for tag in tags if tag != f"v{__version__}"]:
        return earlier[0]
    if _git("rev-parse", "--is-shallow-repository") == "true":
        raise NoReleaseError("the clone is shallow and has no tag of a release")
    if _git("status", "--porcelain", "--", *SCHEMA):
        raise NoReleaseError("there is no tag of a release, and the schema has changes that are not committed")
    return _git("log", "-1", "--format=%H", "--", *SCHEMA)


def build(release: str, directory: Path) -> str:
    """Write the files of the release into the directory, and return its version."""
    packed = _run("git", "archive", release, *NEEDED)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    path = directory / "django_graphile_worker" / "__init__.py"
    text = path.read_text(encoding="utf-8").replace(f'"{__version__}"', f'"{EARLIER_VERSION}"')
    path.write_text(text, encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)
    assert found is not None
    return found[1]


def _git(*arguments: str) -> str:
    return _run("git", *arguments).decode().strip()


def _run(*command: str) -> bytes:
    environment = os.environ | {"GIT_OPTIONAL_LOCKS": "0"}
    try:
        return subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, check=True).stdout
    except FileNotFoundError as error:
        raise NoReleaseError("git is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NoReleaseError(f"{' '.join(command)}: {error.stderr.decode().strip()}") from error
