"""Which Kubernetes and which KWOK: their go.mod files say so, and nothing else repeats it.

A build is named by everything that decides its bytes, so that a changed version, dependency or flag is another
directory in the cache and an unchanged one is found again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Source:
    """A Go module of ours that pins a program and lists its commands as tools."""

    name: str
    module: str
    directory: Path
    version_packages: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """The import paths in the ``tool`` block."""
        return tools((self.directory / "go.mod").read_text())

    @property
    def programs(self) -> tuple[str, ...]:
        """The file names that a build leaves."""
        return tuple(command.rsplit("/", 1)[1] for command in self.commands)

    @property
    def version(self) -> str:
        """The pinned version, like ``v1.34.4``."""
        return required_version((self.directory / "go.mod").read_text(), self.module)

    @property
    def linker_flags(self) -> str:
        """Without these a program built outside its own repository reports v0.0.0."""
        major, minor = self.version.removeprefix("v").split(".")[:2]
        stamps = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
        flags = [f"-X {package}.{name}={value}" for package in self.version_packages for name, value in stamps.items()]
        return " ".join(["-s", "-w", *flags])

    def cache_key(self, architecture: str) -> str:
        """A directory name, for instance ``kubernetes-v1.34.4-amd64-0f3a9c21d4e5``."""
        texts = [(self.directory / name).read_bytes() for name in ("go.mod", "go.sum")]
        digest = hashlib.sha256(b"\0".join([*texts, self.linker_flags.encode()])).hexdigest()
        return f"{self.name}-{self.version}-{architecture}-{digest[:12]}"


def required_version(go_mod: str, module: str) -> str:
    """The version that the text of a go.mod requires of ``module``; KeyError when it does not."""
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", go_mod, flags=re.MULTILINE)
    if found is None:
        raise KeyError(f"go.mod requires no {module}")
    return found[1]


def tools(go_mod: str) -> tuple[str, ...]:
    """The import paths of the ``tool`` lines and blocks of a go.mod, in order."""
    blocks = re.findall(r"^tool \(\n(.*?)^\)", go_mod, flags=re.MULTILINE | re.DOTALL)
    single = re.findall(r"^tool ([^\s(]+)$", go_mod, flags=re.MULTILINE)
    return tuple(line.strip() for block in blocks for line in block.splitlines() if line.strip()) + tuple(single)


KUBERNETES = Source(
    name="kubernetes",
    module="k8s.io/kubernetes",
    directory=HERE / "kubernetes",
    version_packages=("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
)
KWOK = Source(
    name="kwok",
    module="sigs.k8s.io/kwok",
    directory=HERE / "kwok",
    version_packages=(),
)
