"""Builds the Kubernetes components, and KWOK when asked, from their Go modules.

A build goes to a directory of its own beside the final one and is renamed when complete: an interrupted build is never
taken for a finished one, and Go's own cache lets the next attempt continue where it stopped.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from localcluster import progress
from localcluster.errors import ClusterError
from localcluster.layout import Layout
from localcluster.locking import exclusive
from localcluster.versions import Source

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
REPORT_EVERY_S = 30.0


def architecture() -> str:
    """This machine's, by Go's and OCI's name for it."""
    return ARCHITECTURES.get(platform.machine(), platform.machine())


def directory(layout: Layout, source: Source) -> Path:
    """Where the finished programs of ``source`` are, or will be."""
    return layout.cache / "bin" / source.cache_key(architecture())


def is_built(layout: Layout, source: Source) -> bool:
    """True when a complete build of exactly this source is in the cache."""
    return directory(layout, source).is_dir()


def go_program() -> str | None:
    """The Go command, also where its own installer puts it."""
    return shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")


def ensure(layout: Layout, source: Source) -> Path:
    """Build ``source`` unless it is cached; return where its programs are. ClusterError when Go is missing or fails."""
    final = directory(layout, source)
    if final.is_dir():
        return final
    with exclusive(layout.cache / f"{source.name}.lock", f"builds {source.name}"):
        if not final.is_dir():
            _build(source, final, layout.cache / f"build-{source.name}.log")
    return final


def _build(source: Source, final: Path, log: Path) -> None:
    go = go_program()
    if go is None:
        raise ClusterError(
            f"Building {source.name} {source.version} needs Go, and there is no `go` on PATH; install Go 1.24 or newer."
        )
    partial = final.with_name(final.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    flags = ["-trimpath", "-ldflags", source.linker_flags]
    environment = os.environ | {"GOWORK": "off", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    progress.say(f"building {', '.join(source.programs)} {source.version}, once; this takes minutes; log: {log}")
    stale = _stale_packages(go, flags, source, environment, log)
    command = [go, "build", "-v", *flags, "-o", f"{partial}{os.sep}", *source.commands]
    with subprocess.Popen(
        command, cwd=source.directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        tail = _follow(running.stdout, log, stale)
    if running.returncode:
        raise ClusterError(
            f"`go build` of {source.name} failed (exit {running.returncode}): {tail}; the whole output is in {log}."
        )
    partial.rename(final)


def _stale_packages(go: str, flags: list[str], source: Source, environment: dict[str, str], log: Path) -> int:
    """How many packages are still to compile, for the progress line. This step also fetches the modules."""
    template = "{{if .Stale}}{{.ImportPath}}{{end}}"
    command = [go, "list", "-deps", *flags, "-f", template, *source.commands]
    listed = subprocess.run(command, cwd=source.directory, env=environment, capture_output=True, text=True, check=False)
    if listed.returncode:
        log.write_text(listed.stderr)
        last = (listed.stderr.strip().splitlines() or ["no output"])[-1]
        raise ClusterError(
            f"Go could not resolve the modules of {source.name} {source.version}: {last}; the whole output is in {log}."
        )
    return sum(1 for line in listed.stdout.splitlines() if line)


def _follow(lines: Iterable[str], log: Path, total: int) -> str:
    """Copy the compiler's lines to ``log``, show how far it is, and return the last line."""
    compiled, last, began = 0, "", time.monotonic()
    reported = began
    with log.open("w") as out:
        for line in lines:
            out.write(line)
            last = line.strip() or last
            # `go build -v` prints the import path of each package it compiles, and nothing else when all goes well.
            compiled += " " not in line.strip()
            now = time.monotonic()
            state = f"compiled {min(compiled, total)} of {total} packages in {now - began:.0f} s"
            progress.count(state)
            if now - reported >= REPORT_EVERY_S:
                progress.count_done()
                progress.say(state)
                reported = now
    progress.count_done()
    return last
