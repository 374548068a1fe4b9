"""Same input, same bytes out: whatever the order of hashes, the number of threads, the folder, and the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RECORDS = Path(__file__).parents[1] / "planning" / "records"
SMALL = RECORDS / "small"
COMMANDS = [
    *(["plan", f"{name}.json"] for name in ("tie-02", "shares-11", "pins-08", "both-05", "infeasible-02")),
    ["plan", "moves-02.json", "--current", "moves-02.current.json"],
    ["plan", "moves-blocked-01.json", "--current", "moves-blocked-01.current.json"],
    ["plan", str(RECORDS / "hard-2-permanent-or-forward-80gib.json")],
    ["plan", str(RECORDS / "hard-7-unequal-pins-2-ranks.json")],
    ["explain", "pins-02.json"],
    ["frontier", "device-03.json", "--sizes", "5"],
]
RUN = """
import json, os, sys
from typer.testing import CliRunner
from stowplan_agent.cli import app
os.chdir(sys.argv[1])
for arguments in json.loads(sys.argv[2]):
    print(CliRunner().invoke(app, [*arguments, "--output", "json"]).stdout)
    print(CliRunner().invoke(app, arguments).stdout)
wrong = '{"apiVersion":"stowplan.dev/v1alpha1","kind":"Placement","components":[{"name":"transformer",'
wrong += '"mode":"Layerwise","groups":[{"name":"x","residentLayers":0,"pinnedLayers":[0]}]}]}'
two_groups = "../hard-2-permanent-or-forward-80gib.json"
print(CliRunner().invoke(app, ["cost", two_groups, "-"], input=wrong).stdout)
"""


def printed(seed: str, threads: str) -> bytes:
    environment = os.environ | {"PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(SMALL), json.dumps(COMMANDS)], capture_output=True, check=True, env=environment
    )
    return done.stdout


def test_hashes_and_threads_change_no_byte() -> None:
    first = printed("0", "1")
    assert len(first) > 50_000 and b"Traceback" not in first
    assert printed("1", "4") == first
    assert printed("4242", "2") == first
