"""What all tests share: how they are spread over workers, where there are several (``make test``)."""

from __future__ import annotations

from pathlib import Path

import pytest

CLUSTER = Path(__file__).parent / "cluster"


@pytest.hookimpl(tryfirst=True)  # before the workers read the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker a file, which shares its fixtures; and one for the cluster, of which a machine has one."""
    for item in items:
        group = "cluster" if item.path.is_relative_to(CLUSTER) else item.path.as_posix()
        item.add_marker(pytest.mark.xdist_group(group))
