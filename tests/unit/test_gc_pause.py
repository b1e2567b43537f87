from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from django_graphile_worker.gc_pause import DEFAULT, FORMER_DEFAULT, collect_less_often, collector_paused


class Knot:
    """Garbage that only the collector can find."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()
    gc.enable()


def test_while_the_models_load_the_collector_rests() -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_was_made_meanwhile_is_old_and_can_still_be_collected() -> None:
    with collector_paused():
        knot = weakref.ref(Knot())
    gc.collect(1)
    assert knot() is not None
    gc.collect()
    assert knot() is None


def test_a_failure_leaves_the_collector_at_work() -> None:
    with pytest.raises(ImportError), collector_paused():
        raise ImportError
    assert gc.isenabled()


def test_a_project_that_manages_the_collector_itself_finds_it_as_it_left_it() -> None:
    gc.freeze()
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_a_worker_collects_as_often_as_newer_versions_of_python_do() -> None:
    gc.set_threshold(FORMER_DEFAULT, 9, 8)
    collect_less_often()
    assert gc.get_threshold() == (DEFAULT, 9, 8)


@pytest.mark.parametrize("threshold", [0, 500, DEFAULT, 50_000])
def test_a_project_that_has_decided_how_often_to_collect_finds_it_as_it_left_it(threshold: int) -> None:
    gc.set_threshold(threshold)
    collect_less_often()
    assert gc.get_threshold()[0] == threshold
