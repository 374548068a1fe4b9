"""Two emulated cards in one pod, from kubectl apply to Ready and a video, with the real operator and the real agent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.product import installed
from cluster.stories import NAME, Story
from localcluster.client import Cluster


@pytest.fixture(scope="module")
def both(local_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with installed(local_cluster, tmp_path_factory, {}) as cluster:
        yield cluster


def test_two_ranks_are_ready_and_the_placement_shows_both(both: Cluster, namespace: str) -> None:
    story = Story(both, namespace)
    card = {"gpus": 0, "deviceMemory": "40Mi", "cpu": 1, "memory": "4Gi"}
    shape = {"name": "clip", "width": 32, "height": 32, "frames": 5, "steps": 2}
    story.apply(resources=card, workload={"shapes": [shape]}, parallelism={"ulysses": 2})
    story.wait(NAME)
    status = story.placement()
    assert (status["phase"], story.gate(), story.health()) == ("Ready", "True", 200)
    assert status["validation"]["bitEqual"] is True
    assert [rank["rank"] for rank in status["ranks"]] == [0, 1]
    assert all(rank["device"] == "Emulated 40 MiB" and rank["peakBytes"] > 0 for rank in status["ranks"])
    assert story.request()[4:8] == b"ftyp"
    assert story.pod()["status"]["containerStatuses"][0]["restartCount"] == 0
