from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from django_graphile_worker.gc_pause import collector_paused


class Knot:
    """Garbage that only the collector can find."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
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
