"""Images without a registry: two tiny ones made here, and the import of any other from a tar.

``HOST`` holds a static busybox and an empty file tree; its pods mount the machine's own Python and the project (see
host_python.py). ``SANDBOX`` is the same layer with a process that does nothing and ends at once when asked: a sandbox
that ignored SIGTERM would add its pod's whole grace period to every deletion.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster import build, packages
from localcluster.errors import ClusterError
from localcluster.layout import Layout

SANDBOX = "stowplan.dev/sandbox:dev"
HOST = "stowplan.dev/host:dev"
NAMESPACE = "k8s.io"
USER_ID = 65532
SHELL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A shell with a handler, because the kernel drops unhandled signals to process 1; `wait` also reaps orphans.
PAUSE = "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait $!; done"
APPLETS = (
    "sh",
    "cat",
    "cp",
    "echo",
    "env",
    "head",
    "id",
    "kill",
    "ls",
    "mkdir",
    "nc",
    "ps",
    "rm",
    "seq",
    "sleep",
    "tail",
    "test",
    "wget",
)
DIRECTORIES = ("bin", "dev", "etc", "home", "lib", "lib64", "proc", "root", "sys", "tmp", "usr", "var")
FILES = {
    "etc/passwd": f"root:x:0:0:root:/root:/bin/sh\nstowplan:x:{USER_ID}:{USER_ID}:stowplan:/home:/bin/sh\n",
    "etc/group": f"root:x:0:\nstowplan:x:{USER_ID}:\n",
}


@dataclass(frozen=True)
class Image:
    """What an image is beside its layer."""

    name: str
    entrypoint: Sequence[str]
    user: str

    def configuration(self, layer_digest: str, architecture: str) -> dict[str, object]:
        """The OCI image configuration; ``layer_digest`` is of the uncompressed tar."""
        return {
            "architecture": architecture,
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "User": self.user,
                "Env": [f"PATH={SHELL_PATH}"],
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        }


IMAGES = (
    Image(SANDBOX, ("/bin/sh", "-c", PAUSE), ""),
    # A number, so that `runAsNonRoot` can be checked.
    Image(HOST, ("/bin/sh",), f"{USER_ID}:{USER_ID}"),
)


def layer(busybox: bytes) -> bytes:
    """The one layer, uncompressed: busybox, links to it by name, a user, and the directories that mounts cover."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in DIRECTORIES:
            _add(tar, name, kind=tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755)
        _add(tar, "bin/busybox", busybox, mode=0o755)
        for applet in APPLETS:
            _add(tar, f"bin/{applet}", kind=tarfile.SYMTYPE, target="busybox")
        for name, text in FILES.items():
            _add(tar, name, text.encode())
    return out.getvalue()


def archive(images: Sequence[Image], layer_tar: bytes, architecture: str) -> bytes:
    """An OCI image layout as one tar: blobs, an index of ``images``, the version; the same bytes for the same input."""
    blobs: dict[str, bytes] = {}

    def store(content: bytes, media: str) -> dict[str, object]:
        digest = _digest(content)
        blobs[digest] = content
        return {"mediaType": f"application/vnd.oci.image.{media}", "digest": digest, "size": len(content)}

    layer_entry = store(layer_tar, "layer.v1.tar")
    manifests = []
    for image in images:
        configuration = _json(image.configuration(_digest(layer_tar), architecture))
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": store(configuration, "config.v1+json"),
            "layers": [layer_entry],
        }
        names = {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name.rsplit(":", 1)[1],
        }
        manifests.append(store(_json(manifest), "manifest.v1+json") | {"annotations": names})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add(tar, "index.json", _json({"schemaVersion": 2, "manifests": manifests}))
        for digest, content in sorted(blobs.items()):
            _add(tar, f"blobs/{digest.replace(':', '/')}", content)
    return out.getvalue()


def load_own(layout: Layout) -> None:
    """Make and import the two images of this module."""
    path = layout.data / "images.tar"
    path.write_bytes(archive(IMAGES, layer(packages.BUSYBOX.read_bytes()), build.architecture()))
    load(layout, path)
    path.unlink()


def load(layout: Layout, path: Path) -> list[str]:
    """Import an OCI or `docker save` tar into the node; the names now there. ClusterError when the file is none."""
    if not path.is_file():
        raise ClusterError(
            f"There is no image file {path}; "
            f"make one with `buildah push IMAGE oci-archive:{path}:NAME` or `docker save`."
        )
    done = _ctr(layout, "images", "import", str(path.resolve()))
    if done.returncode:
        raise ClusterError(f"containerd did not take {path} as an image archive: {done.stderr.strip()}")
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("unpacking ")]


def containerd_answers(layout: Layout) -> bool:
    """True when containerd serves requests."""
    return layout.containerd_socket.exists() and _ctr(layout, "version").returncode == 0


def _ctr(layout: Layout, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["ctr", "--address", str(layout.containerd_socket), "--namespace", NAMESPACE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    kind: bytes = tarfile.REGTYPE,
    mode: int = 0o644,
    target: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(content)
    tar.addfile(entry, io.BytesIO(content))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
