"""`stowplan agent` on two emulated cards: one start, one plan, one output; what fails on one rank is undone on both."""

from __future__ import annotations

import base64
import signal
from pathlib import Path

import pytest
from agents import started, write_tiny

END = "start ended: "


@pytest.fixture(scope="module")
def tiny_flux(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny("tiny-flux", tmp_path_factory.mktemp("models"))


def test_two_ranks_start_serve_and_heed_the_kill_switch(tiny_flux: Path) -> None:
    with started(tiny_flux, "--shape", "32x32@2") as agent:
        agent.until(f"{END}Ready bit-equal", times=2)
        status = agent.get("/residency")["status"]
        assert [rank["rank"] for rank in status["ranks"]] == [0, 1]
        assert all(0 < rank["peakBytes"] <= 39 << 20 for rank in status["ranks"])
        record = agent.get("/residency")["record"]
        assert [rank["peerBytesPerSecond"] > 0 for rank in record["ranks"]] == [True, True]
        assert all(len(run["activationBytes"]) == 2 for one in record["intervals"] for run in one["runs"])

        def image(seed: int) -> bytes:
            body = {"prompt": "a red kite", "size": "32x32", "seed": seed, "response_format": "b64_json"}
            return base64.b64decode(agent.post("/v1/images/generations", body)["data"][0]["b64_json"])

        before = image(7)
        agent.process.send_signal(signal.SIGUSR1)
        agent.until(f"{END}RolledBack bit-equal", times=2)
        status = agent.get("/residency")["status"]
        assert status["phase"] == "RolledBack" and len(status["ranks"]) == 2
        assert image(7) == before, "another placement, the same bits"
        agent.process.send_signal(signal.SIGTERM)
        assert agent.end() == 0


@pytest.mark.parametrize(
    ("faults", "end", "sentence", "code"),
    [
        ("rank1/validate.output", "RolledBack bit-equal", "rank 1: the output differs from the reference", 0),
        ("rank0/apply.1 rank0/rollback", "Failed", "rank 0 could not roll back: rolling back failed", 70),
    ],
    ids=["output", "rollback"],
)
def test_a_fault_on_one_rank_takes_both_back_or_ends_both(
    tiny_flux: Path, faults: str, end: str, sentence: str, code: int
) -> None:
    with started(tiny_flux, "--shape", "32x32@2", faults=faults) as agent:
        agent.until(END + end, times=2 if code == 0 else 1)
        if code == 0:
            (rollback,) = agent.get("/residency")["status"]["rollbacks"]
            assert sentence in rollback["message"]
            agent.process.send_signal(signal.SIGTERM)
        assert agent.end() == code
        if code:
            assert sentence in agent.lines[-1], "the last word is why"
