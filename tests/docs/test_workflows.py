"""The files that a hosting service and hooks read agree with tox.ini, the Makefile and pyproject.toml."""

from __future__ import annotations

import configparser
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import CHECKOUT
from tests.support import postgres_versions

GITHUB = CHECKOUT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
# YAML 1.1 reads the key `on` as a boolean.
ON = True
CALL = re.compile(r"\bmake ([^\n;&|]+)")


def _read(path: Path) -> dict[Any, Any]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def _matrix() -> list[dict[str, Any]]:
    include = _read(GITHUB / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert isinstance(include, list)
    return include


def _expanded(name: str) -> Iterator[str]:
    """Expand braces as tox does: py{312,313}-django{52,60} names four environments."""
    parts = [part.split(",") for part in re.split(r"[{}]", name)]
    # Outside of braces there is no comma, so such a part has one alternative.
    return ("".join(chosen) for chosen in itertools.product(*parts))


def _tox_environments() -> set[str]:
    tox = configparser.ConfigParser()
    tox.read(CHECKOUT / "tox.ini", encoding="utf-8")
    return {name for line in tox["tox"]["env_list"].split() for name in _expanded(line)}


def _tox_name(job: dict[str, Any]) -> str:
    schema = "-customschema" if "schema" in job else ""
    return f"py{job['python']}-django{job['django']}{schema}".replace(".", "")


def test_matrix__has_the_environments_of_tox() -> None:
    names = [_tox_name(job) for job in _matrix()]
    assert sorted(names) == sorted(_tox_environments())


def test_matrix__has_the_versions_of_the_classifiers() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for key, prefix in [("python", "Programming Language :: Python :: "), ("django", "Framework :: Django :: ")]:
        named = {text.removeprefix(prefix) for text in project["classifiers"] if text.startswith(prefix)}
        assert {job[key] for job in _matrix()} == {version for version in named if "." in version}


def test_matrix__has_every_postgres_and_each_django_the_oldest_and_the_newest() -> None:
    supported = postgres_versions.SUPPORTED
    assert {job["postgres"] for job in _matrix()} == set(supported)
    for django in {job["django"] for job in _matrix()}:
        versions = {job["postgres"] for job in _matrix() if job["django"] == django}
        assert {min(supported), max(supported)} <= versions, django


def _commands(path: Path) -> Iterator[str]:
    for job in _read(path)["jobs"].values():
        yield from (step["run"] for step in job.get("steps", ()) if "run" in step)


def _targets(command: str) -> Iterator[str]:
    for words in CALL.findall(command):
        yield from (word for word in words.split() if "=" not in word and not word.startswith("-"))


def _make_targets() -> set[str]:
    text = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", text, flags=re.MULTILINE)
    assert phony is not None
    defined = set(re.findall(r"^([a-z]+):", text, flags=re.MULTILINE))
    assert defined == set(phony[1].split())
    return defined


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.stem))
def test_workflow__calls_targets_that_the_makefile_has(path: Path) -> None:
    called = {target for command in _commands(path) for target in _targets(command)}
    assert called
    assert called <= _make_targets()


def test_workflows__run_the_tests_the_fault_tests_and_the_build() -> None:
    called = {path.stem: {target for text in _commands(path) for target in _targets(text)} for path in WORKFLOWS}
    assert "test" in called["test"]
    assert "chaos" in called["nightly"]
    assert "build" in called["release"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.stem))
def test_workflow__has_no_more_rights_than_it_needs(path: Path) -> None:
    workflow = _read(path)
    assert workflow["permissions"] == {"contents": "read"}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert rights == ({"publish": {"id-token": "write"}} if path.stem == "release" else {})


def test_release__is_published_from_a_tag_after_the_tests() -> None:
    workflow = _read(GITHUB / "workflows" / "release.yml")
    jobs = workflow["jobs"]
    assert workflow[ON] == {"push": {"tags": ["v*"]}}
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")
    assert jobs["publish"]["environment"] == "pypi"
    assert "workflow_call" in _read(GITHUB / "workflows" / "test.yml")[ON]


def test_dependabot__updates_actions_and_packages() -> None:
    updates = _read(GITHUB / "dependabot.yml")["updates"]
    assert {each["package-ecosystem"] for each in updates} == {"github-actions", "pip"}


def test_hooks__have_the_ruff_of_the_checks_and_call_targets_that_the_makefile_has() -> None:
    groups = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    (pinned,) = [line.removeprefix("ruff~=") for line in groups["lint"] if line.startswith("ruff~=")]
    ruff, _, local = _read(CHECKOUT / ".pre-commit-config.yaml")["repos"]
    assert ruff["rev"] == f"v{pinned}"
    called = {target for hook in local["hooks"] for target in _targets(hook["entry"])}
    assert called <= _make_targets()
    # ruff-check and ruff-format are `make lint`.
    assert called | {"lint"} == _prerequisites_of("check")


def _prerequisites_of(target: str) -> set[str]:
    found = re.search(rf"^{target}: (.+)$", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found is not None
    return set(found[1].split())
