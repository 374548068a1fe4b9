"""What is there at a freeze stays unlooked at, what comes later is collected as ever, and a thaw takes it back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from stowplan_agent import collector


class Knot:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    collector.thaw()
    assert gc.get_freeze_count() == 0


def test_garbage_from_before_a_freeze_is_not_kept_by_it() -> None:
    gone = weakref.ref(Knot())
    collector.freeze()
    assert gone() is None
    assert gc.get_freeze_count() > 0


def test_what_comes_after_it_is_collected_as_ever() -> None:
    collector.freeze()
    later = weakref.ref(Knot())
    assert later() is not None
    gc.collect()
    assert later() is None


def test_what_was_frozen_is_collected_once_it_was_thawed() -> None:
    kept = Knot()
    gone = weakref.ref(kept)
    collector.freeze()
    del kept
    gc.collect()
    assert gone() is not None
    collector.thaw()
    gc.collect()
    assert gone() is None
