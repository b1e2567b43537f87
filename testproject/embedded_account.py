"""The system account of the embedded PostgreSQL: the current user, or for root an unprivileged account.

PostgreSQL refuses to run as root, and containers and CI often run as root.
"""

from __future__ import annotations

import getpass
import os
import pwd
import stat
import subprocess
from functools import cache
from pathlib import Path
from typing import TypedDict

ACCOUNT = "pgserver"
LAST_RESORT = "nobody"
TRAVERSE = stat.S_IXOTH
READ = stat.S_IROTH


class SubprocessOptions(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


@cache
def name() -> str:
    """Return the name of the account, without creating it."""
    return ACCOUNT if os.geteuid() == 0 else getpass.getuser()


def subprocess_options() -> SubprocessOptions:
    """Return the arguments with which subprocess.run uses the account."""
    if os.geteuid() != 0:
        return {}
    account = _unprivileged()
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def make_private_directory(directory: Path) -> None:
    """Create a directory that belongs to the account and that no other user may enter."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = directory.stat().st_uid
    if owner not in {os.geteuid(), _owner().pw_uid}:
        raise PermissionError(f"Expected {directory} to belong to {name()}, got user id {owner}. Remove it.")
    directory.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(directory, _owner().pw_uid, _owner().pw_gid)


def open_path_to(directory: Path) -> None:
    """Create the directory and, as root only, let the account traverse its parents (not list them)."""
    directory.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        for step in (directory, *directory.parents):
            _allow(step, TRAVERSE)


@cache
def open_installation(install: Path) -> None:
    """As root only, let the account read and execute the binaries, whatever the umask of their installation."""
    if os.geteuid() != 0:
        return
    libraries = install.parent.parent / f"{install.parent.name}.libs"
    open_path_to(install)
    for root in (install, libraries):
        for path in (root, *root.rglob("*")):
            _allow(path, READ | TRAVERSE if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else READ)


def _allow(path: Path, bits: int) -> None:
    mode = path.stat().st_mode
    if mode & bits != bits:
        path.chmod(mode | bits)


def _owner() -> pwd.struct_passwd:
    return _unprivileged() if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


@cache
def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        return _make_account()


def _make_account() -> pwd.struct_passwd:
    made = subprocess.run(["useradd", "--system", "--no-create-home", ACCOUNT], capture_output=True, check=False)
    return pwd.getpwnam(ACCOUNT if made.returncode == 0 else LAST_RESORT)
