"""The names that ``django_graphile_worker`` exports, and the modules that they come from."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import django_graphile_worker
from django_graphile_worker import _HOMES


def _imports_for_type_checkers() -> dict[str, str]:
    """Return what the package imports under TYPE_CHECKING: each name with its module, relative to the package."""
    package = django_graphile_worker.__name__
    return {
        alias.name: str(node.module).removeprefix(f"{package}.")
        for node in ast.walk(ast.parse(inspect.getsource(django_graphile_worker)))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(package)
        for alias in node.names
    }


def test_homes__are_the_modules_that_type_checkers_see() -> None:
    assert _imports_for_type_checkers() == _HOMES


def test_homes__are_those_of_every_public_name() -> None:
    assert sorted(_HOMES) == sorted(django_graphile_worker.__all__)


@pytest.mark.parametrize("name", sorted(_HOMES))
def test_public_name__is_the_object_of_its_home(name: str) -> None:
    home = import_module(f"{django_graphile_worker.__name__}.{_HOMES[name]}")
    assert getattr(django_graphile_worker, name) is getattr(home, name)


def test_unknown_name__is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'django_graphile_worker' has no attribute 'nothing'$"):
        django_graphile_worker.nothing  # noqa: B018


def test_dir__lists_names_that_are_not_loaded_yet() -> None:
    assert set(django_graphile_worker.__all__) <= set(dir(django_graphile_worker))


def test_importing_the_package__loads_no_module_of_it() -> None:
    code = "import sys, django_graphile_worker; print([name for name in sys.modules if 'graphile_worker.' in name])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
