"""The bounded memory keeps the newest and never more than it may."""

from __future__ import annotations

from stowplan_operator.remembered import Remembered


def test_what_was_put_longest_ago_goes_first() -> None:
    memory: Remembered[str, int] = Remembered(2)
    memory.put("a", 1)
    memory.put("b", 2)
    memory.put("a", 3)
    memory.put("c", 4)
    assert (memory.get("a"), memory.get("b"), memory.get("c")) == (3, None, 4)
    assert "b" not in memory
    assert len(memory) == 2
