"""Rendered configuration: what each component is told, and that all of it lies below the cluster's root."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from localcluster import control_plane, kernel, network, node
from localcluster.addresses import NODE_ADDRESS
from localcluster.certificates import ADMIN, IDENTITIES
from localcluster.errors import ClusterError
from localcluster.layout import LONGEST_SOCKET, SOCKET_LIMIT, Layout

LAYOUT = Layout(root=Path("/srv/cluster"), cache=Path("/srv/cache"))


@pytest.mark.parametrize(
    ("environment", "root", "cache"),
    [
        ({"HOME": "/h"}, "/h/.cache/stowplan/cluster", "/h/.cache/stowplan"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, "/c/stowplan/cluster", "/c/stowplan"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/stowplan/cluster", "/h/.cache/stowplan"),
        ({"HOME": "/h", "STOWPLAN_CLUSTER_DIR": "/d", "XDG_STATE_HOME": "/s"}, "/d", "/h/.cache/stowplan"),
    ],
)
def test_layout_follows_the_environment(environment: dict[str, str], root: str, cache: str) -> None:
    assert Layout.from_environment(environment) == Layout(Path(root), Path(cache))


def test_layout_refuses_a_root_too_long_for_a_socket_and_takes_the_longest() -> None:
    longest = "/" + "d" * (SOCKET_LIMIT - len(LONGEST_SOCKET) - 2)
    assert Layout.from_environment({"HOME": "/h", "STOWPLAN_CLUSTER_DIR": longest}).root == Path(longest)
    with pytest.raises(ClusterError, match=f"at most {len(longest)} characters"):
        Layout.from_environment({"HOME": "/h", "STOWPLAN_CLUSTER_DIR": longest + "d"})


def test_layout_refuses_a_relative_root() -> None:
    with pytest.raises(ClusterError, match="must be absolute"):
        Layout.from_environment({"HOME": "/h", "STOWPLAN_CLUSTER_DIR": "here"})


def test_containerd_keeps_everything_below_the_root() -> None:
    told = tomllib.loads(node.containerd_configuration(LAYOUT))
    cri = told["plugins"]["io.containerd.grpc.v1.cri"]
    runc = cri["containerd"]["runtimes"]["runc"]["options"]
    own = [told["root"], told["state"], told["grpc"]["address"], cri["cni"]["conf_dir"], runc["Root"]]
    assert all(Path(path).is_relative_to(LAYOUT.root) for path in own)
    assert cri["restrict_oom_score_adj"] is True


def test_kubelet_evicts_nothing_and_lets_nobody_in_without_a_certificate() -> None:
    told: Any = node.kubelet_configuration(LAYOUT)
    assert told["evictionHard"] == {}
    assert told["authentication"]["anonymous"] == {"enabled": False}
    assert told["authorization"] == {"mode": "Webhook"}
    assert told["containerRuntimeEndpoint"] == "unix:///srv/cluster/run/containerd/containerd.sock"


def test_pods_network_is_a_bridge_with_host_ports() -> None:
    told = json.loads(network.cni_configuration(LAYOUT))
    assert [plugin["type"] for plugin in told["plugins"]] == ["bridge", "portmap"]
    assert told["plugins"][0]["ipam"]["dataDir"] == "/srv/cluster/data/cni"


def test_only_loopback_and_the_nodes_own_address_are_listened_on() -> None:
    programs = Path("/programs")
    commands = [
        control_plane.etcd_command(LAYOUT),
        control_plane.api_server_command(LAYOUT, programs),
        control_plane.controller_manager_command(LAYOUT, programs),
        control_plane.scheduler_command(LAYOUT, programs),
        node.proxy_command(LAYOUT, programs),
    ]
    flags = [flag for command in commands for flag in command]
    bound = [flag.split("=", 1)[1] for flag in flags if "bind-address" in flag or "listen" in flag]
    assert len(bound) >= 7
    assert all("127.0.0.1" in address or NODE_ADDRESS in address for address in bound)


def test_certificates_of_servers_name_hosts_and_the_administrator_is_a_client() -> None:
    servers = {identity.file for identity in IDENTITIES if identity.hosts}
    assert servers == {"kube-apiserver", "etcd", "kubelet-server"}
    (api,) = [identity for identity in IDENTITIES if identity.file == "kube-apiserver"]
    assert f"IP:{NODE_ADDRESS}" in api.extensions
    assert "DNS:kubernetes.default.svc" in api.extensions
    assert ADMIN.subject == "/O=system:masters/CN=stowplan-admin"
    assert "extendedKeyUsage=clientAuth\n" in ADMIN.extensions


def test_kernel_settings_are_put_back_also_after_a_second_start(tmp_path: Path) -> None:
    forward = tmp_path / "sys" / "net" / "ipv4" / "ip_forward"
    forward.parent.mkdir(parents=True)
    forward.write_text("0\n")
    record = tmp_path / "kernel.json"
    for _ in range(2):
        kernel.apply(record, tmp_path / "sys")
    assert forward.read_text() == "1"
    assert kernel.changed(record, tmp_path / "sys") == ["net/ipv4/ip_forward: 1, before 0"]
    kernel.restore(record, tmp_path / "sys")
    assert forward.read_text() == "0"
    assert not record.exists()
