"""The real Dockerfiles, built without Docker, a registry or a daemon: by buildah, on a base made by debootstrap.

Everything lies below the cache, in a storage of its own: the base is made once (two minutes), an image each time it is
asked for. Debian's Python must be the one that the wheels are for, so the base is of the release that has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from localcluster import packages
from localcluster.errors import ClusterError
from localcluster.host_python import TREE
from localcluster.layout import Layout
from localcluster.progress import say

NEEDED = {"buildah": "buildah", "debootstrap": "debootstrap"}
"""Debian packages and the program by which each is known."""
SUITE, SUITE_PYTHON = "bookworm", "3.11"
BASE = f"localhost/stowplan-base:{SUITE}"
IN_BASE = "python3,python3-venv,ca-certificates"
WHEELS = "/wheels"


class Builder:
    """Builds the project's images into a storage below ``layout.cache``."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.cache / "images"
        self._log = self._folder / "build.log"

    def prepare(self) -> None:
        """Install the tools and make the base, each unless it is there. ClusterError says what is in the way."""
        self._folder.mkdir(parents=True, exist_ok=True)
        absent = tuple(name for name, program in NEEDED.items() if packages.program(program) is None)
        packages.install(absent, self._folder / "packages.log", "Building images")
        if BASE not in self._buildah("images", "--format={{.Name}}:{{.Tag}}").split():
            self._make_base()

    def build(self, name: str, dockerfile: str, extra: str, **arguments: str) -> Path:
        """Build ``dockerfile`` of the tree as ``name``, with the dependencies of an extra; the image as a tar.

        An empty ``extra`` means what every installation needs; further ``arguments`` are the Dockerfile's own.
        """
        wheels = self._wheels(extra)
        say(f"building {name}; its output is in {self._log}")
        arguments |= {"BASE": BASE, "PIP_ARGUMENTS": f"--no-index --find-links {WHEELS}"}
        given = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        self._buildah(
            *("bud", "--pull-never", "--volume", f"{wheels}:{WHEELS}:ro", *given),
            *("--ignorefile", str(TREE / ".dockerignore"), "--tag", name, "--file", str(TREE / dockerfile), str(TREE)),
        )
        archive = self._folder / f"{Path(dockerfile).parent.name}.tar"
        archive.unlink(missing_ok=True)
        self._buildah("push", "--quiet", name, f"oci-archive:{archive}:{name}")
        return archive

    def inspect(self, name: str, template: str) -> str:
        """One field of an image's configuration, by a Go template."""
        return self._buildah("inspect", "--type=image", f"--format={template}", name).strip()

    def _make_base(self) -> None:
        say(f"making {BASE} with debootstrap (two minutes, once)")
        root = self._folder / "base"
        shutil.rmtree(root, ignore_errors=True)
        self._run("debootstrap", "--variant=minbase", f"--include={IN_BASE}", SUITE, str(root))
        container = self._buildah("from", "scratch").strip()
        self._buildah("add", "--quiet", container, str(root), "/")
        self._buildah("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(root)

    def _wheels(self, extra: str) -> Path:
        """A folder with every wheel that a build of this extra installs, and setuptools to build the project itself."""
        project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
        further = project["optional-dependencies"][extra] if extra else ()
        wanted = [*project["dependencies"], *further, "setuptools", "wheel"]
        folder = self._folder / f"wheels-{extra or 'bare'}"  # Kept: pip fetches only what is not there.
        options = ["--dest", str(folder), "--only-binary=:all:", "--python-version", SUITE_PYTHON]
        constraints = ["--constraint", str(TREE / "constraints.txt")]
        self._run(sys.executable, "-m", "pip", "download", "--quiet", *options, *constraints, *wanted)
        return folder

    def _buildah(self, *arguments: str) -> str:
        storage = ["--root", str(self._folder / "root"), "--runroot", str(self._folder / "run")]
        return self._run("buildah", *storage, "--storage-driver", "vfs", *arguments)

    def _run(self, *command: str) -> str:
        environment = os.environ | {"BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        with self._log.open("a") as log:
            log.write(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}")
        if done.returncode:
            raise ClusterError(f"{Path(command[0]).name} failed ({done.returncode}); its output is in {self._log}.")
        return done.stdout
