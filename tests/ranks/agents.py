"""``stowplan agent`` for several ranks as a user starts it: processes, emulated cards, HTTP, signals."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

RUN: Final = "from stowplan_agent.cli import app; app()"
TINY_MODELS: Final = Path(__file__).parents[2] / "examples" / "tiny_models.py"


def write_tiny(name: str, folder: Path) -> Path:
    """A checkpoint of ``examples/tiny_models.py``."""
    spec = importlib.util.spec_from_file_location("tiny_models", TINY_MODELS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written: Path = module.write_model(name, folder / name)
    return written


@dataclass
class Agent:
    """A started one. What it prints is read as it comes: that is what is waited for."""

    process: subprocess.Popen[str]
    port: int
    lines: list[str] = field(default_factory=list)

    def until(self, text: str, times: int = 1) -> None:
        """Read until so many lines with the text have come. Fails where the output ends before."""
        assert self.process.stderr is not None
        while sum(text in line for line in self.lines) < times:
            line = self.process.stderr.readline()
            assert line, "it ended before: " + "".join(self.lines[-30:])
            self.lines.append(line)

    def end(self) -> int:
        """Read what is left, and return the exit code."""
        assert self.process.stderr is not None
        self.lines += self.process.stderr.readlines()
        return self.process.wait()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return json.loads(answer.read())

    def post(self, path: str, body: Any) -> Any:
        data, headers = json.dumps(body).encode(), {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())


@contextmanager
def started(checkpoint: Path, *arguments: str, ranks: int = 2, faults: str = "") -> Iterator[Agent]:
    """Ranks with a card of 40 MiB each; ended at the end, whatever they are at."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "STOWPLAN_FAULTS": faults}
    card = ("--accelerator", "emulated", "--device-memory", "40Mi", "--device-reserve", "1Mi", "--host-memory", "4Gi")
    command = [sys.executable, "-c", RUN, "agent", str(checkpoint), "--gpus", str(ranks), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--dtype", "float32", *card, *arguments], env=variables, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Agent(process, port)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)  # its ranks end with it
        process.communicate()
