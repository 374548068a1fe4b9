"""The images made here are ones that any OCI reader takes."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from localcluster import images
from localcluster.host_python import HostPython, outermost

BUSYBOX = b"\x7fELF not really"


def _read(archive: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {member.name: file.read() for member in tar if (file := tar.extractfile(member)) is not None}


def _blob(files: dict[str, bytes], entry: dict[str, Any]) -> bytes:
    content = files["blobs/" + entry["digest"].replace(":", "/")]
    assert entry["digest"] == "sha256:" + hashlib.sha256(content).hexdigest()
    assert entry["size"] == len(content)
    return content


def test_archive_leads_from_index_to_layer_by_true_digests() -> None:
    layer = images.layer(BUSYBOX)
    files = _read(images.archive(images.IMAGES, layer, "amd64"))
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads(files["index.json"])
    names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert names == [images.SANDBOX, images.HOST]
    for entry, image in zip(index["manifests"], images.IMAGES, strict=True):
        manifest = json.loads(_blob(files, entry))
        configuration = json.loads(_blob(files, manifest["config"]))
        assert [_blob(files, each) for each in manifest["layers"]] == [layer]
        assert configuration["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
        assert configuration["config"]["Entrypoint"] == list(image.entrypoint)
        assert (configuration["os"], configuration["architecture"]) == ("linux", "amd64")


def test_host_image_has_a_numeric_user_so_that_run_as_non_root_can_be_checked() -> None:
    (host,) = [image for image in images.IMAGES if image.name == images.HOST]
    assert host.user.split(":")[0].isdigit()
    assert host.user.split(":")[0] != "0"


def test_layer_has_a_shell_a_writable_tmp_and_a_place_for_every_system_mount() -> None:
    with tarfile.open(fileobj=io.BytesIO(images.layer(BUSYBOX))) as tar:
        members = {member.name: member for member in tar}
        shell = tar.extractfile("bin/sh")
        assert shell is not None
        assert shell.read() == BUSYBOX
    assert members["bin/busybox"].mode == 0o755
    assert members["tmp"].mode == 0o1777
    assert all(members[name].isdir() for name in ("usr", "lib", "lib64", "proc", "dev", "sys"))


def test_archive_is_the_same_for_the_same_input() -> None:
    first, second = (images.archive(images.IMAGES, images.layer(BUSYBOX), "amd64") for _ in range(2))
    assert first == second


def test_outermost_drops_what_lies_below_another_path() -> None:
    given = map(Path, ("/usr", "/usr/local", "/srv/tree/.venv", "/srv/tree", "/srv/tree-of-another", "/usr"))
    assert outermost(given) == (Path("/usr"), Path("/srv/tree"), Path("/srv/tree-of-another"))


def test_override_mounts_every_path_read_only_where_it_is_here(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    here = HostPython(Path("/venv/bin/python"), (tmp_path / "tree", file))
    (tmp_path / "tree").mkdir()
    spec: Any = here.pod_template("server")["spec"]
    (container,) = spec["containers"]
    assert "command" not in container
    (path,) = [variable["value"] for variable in container["env"] if variable["name"] == "PATH"]
    assert path.startswith("/venv/bin:")
    assert (container["image"], container["imagePullPolicy"]) == (images.HOST, "Never")
    volumes = {volume["name"]: volume["hostPath"] for volume in spec["volumes"]}
    assert [volume["type"] for volume in volumes.values()] == ["Directory", "File"]
    for mount in container["volumeMounts"]:
        assert mount["readOnly"] is True
        assert volumes[mount["name"]]["path"] == mount["mountPath"]


def test_chart_values_carry_the_same_volumes() -> None:
    here = HostPython.here()
    spec: Any = here.pod_template()["spec"]
    values: Any = here.chart_values()
    assert values["extraVolumes"] == spec["volumes"]
    assert values["extraVolumeMounts"] == spec["containers"][0]["volumeMounts"]
    assert values["agent"]["podTemplate"] == here.pod_template()
    assert values["command"][1:] == ["-m", "stowplan_operator"]
    assert "{repository}:{tag}".format(**values["image"]) == images.HOST
