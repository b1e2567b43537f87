from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from django_graphile_worker.worker.process.worker_process import FORMER_GC_DEFAULT, GC_DEFAULT, collect_less_often


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_a_worker_collects_as_often_as_newer_versions_of_python_do() -> None:
    gc.set_threshold(FORMER_GC_DEFAULT, 9, 8)
    collect_less_often()
    assert gc.get_threshold() == (GC_DEFAULT, 9, 8)


@pytest.mark.parametrize("threshold", [0, 500, GC_DEFAULT, 50_000])
def test_a_project_that_has_decided_how_often_to_collect_finds_it_as_it_left_it(threshold: int) -> None:
    gc.set_threshold(threshold)
    collect_less_often()
    assert gc.get_threshold()[0] == threshold
