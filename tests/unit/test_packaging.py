"""The wheel contains every file that the package reads, and no file that only its development needs."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import django_graphile_worker

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGE = CHECKOUT / "django_graphile_worker"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build the wheel as `pip wheel` would, with the build backend of this environment: no network."""
    (path,) = _build(tmp_path_factory.mktemp("wheel")).glob("*.whl")
    return zipfile.ZipFile(path)


def _build(directory: Path) -> Path:
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(directory)], cwd=CHECKOUT, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def _source_files() -> set[str]:
    return {
        path.relative_to(CHECKOUT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_wheel__contains_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    assert _source_files() <= set(wheel.namelist())


def test_wheel__contains_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    version = django_graphile_worker.__version__
    assert tops == {"django_graphile_worker", f"django_graphile_worker-{version}.dist-info"}


def test_wheel__needs_django_json5_and_psycopg_only(metadata: Message) -> None:
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(needed) == ["django>=5.2", "json5>=0.11", "psycopg>=3.2.10"]


def test_description__has_no_relative_link(metadata: Message) -> None:
    """A package index shows the description without the files beside it."""
    targets = _link_targets(str(metadata.get_payload()))
    assert len(targets) > 10
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def _link_targets(markdown: str) -> list[str]:
    """Return the targets of inline links and images, of link definitions, and of HTML."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    inline = re.findall(r"\]\(<?([^)\s>]*)", text)
    definitions = re.findall(r"^ {0,3}\[[^\]]+\]: *<?([^\s>]+)", text, flags=re.MULTILINE)
    html = re.findall(r"(?:href|src)=[\"']([^\"']*)", text)
    return inline + definitions + html


def test_installation__runs_no_code_of_ours(wheel: zipfile.ZipFile) -> None:
    """The wheel has no scripts, no file that Python runs at each start, and no compiled code."""
    names = wheel.namelist()
    assert [name for name in names if name.endswith((".pth", ".so", ".pyd")) or ".data/" in name] == []
    (text,) = (wheel.read(name).decode() for name in names if name.endswith(".dist-info/WHEEL"))
    assert "Root-Is-Purelib: true" in text
    assert not (CHECKOUT / "setup.py").exists(), "an installation from source would run it"


def test_wheel__names_the_pytest_plugin(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt"))
    plugin = "django_graphile_worker.pytest_plugin"
    assert f"[pytest11]\ngraphile_worker = {plugin}" in wheel.read(name).decode()
    assert f"{plugin.replace('.', '/')}.py" in wheel.namelist()
