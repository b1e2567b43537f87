"""Objects that a role has planted in a schema of the search_path are not used by migrations."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from django.db import connections

from tests.migration.conftest import Site
from tests.support.planted import PLANTED, Planted, PlantedSearchPath


@pytest.fixture
def planted(site: Site) -> Iterator[Planted]:
    """Look-alikes of the functions and operators of PostgreSQL, on the search_path of every new session."""
    role = f"gw_planter_{os.getpid()}"
    with site.connect() as owner:
        planted = Planted(owner, role)
        planted.plant()
        owner.execute(f'alter database "{owner.info.dbname}" set search_path = public, {PLANTED}'.encode())
        yield planted
        connections[site.alias].close()
        planted.remove()


def test_migrations__neither_call_nor_use_planted_objects(site: Site, planted: Planted) -> None:
    with connections[site.alias].execute_wrapper(PlantedSearchPath(is_path_kept=True)):
        site.migrate()
        assert planted.dependents() == []
        site.migrate("0002")
        site.migrate("zero")

    assert planted.dependents() == []
    assert planted.calls() == 0
