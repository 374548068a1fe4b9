"""The node's link and address, the pods' network, and the packet filter tables: made at start, gone after stop."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path

from localcluster import packages
from localcluster.addresses import CNI_NETWORK, LOOPBACK_PORTS, NODE_ADDRESS, NODE_LINK, POD_CIDR, POD_LINK
from localcluster.errors import ClusterError
from localcluster.layout import Layout

CNI_CACHE = Path("/var/lib/cni/results")
PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))


def cni_configuration(layout: Layout) -> str:
    """The conflist: a bridge on the host, addresses from POD_CIDR, and host ports for pods that ask for one."""
    ranges = {"type": "host-local", "dataDir": str(layout.data / "cni"), "ranges": [[{"subnet": POD_CIDR}]]}
    bridge = {
        "type": "bridge",
        "bridge": POD_LINK,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": ranges | {"routes": [{"dst": "0.0.0.0/0"}]},
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": CNI_NETWORK, "plugins": [bridge, portmap]}, indent=2) + "\n"


def claim() -> None:
    """ClusterError when something listens on a port that the components need, for instance another local cluster."""
    if (taken := busy_ports()) != []:
        raise ClusterError(
            f"The local cluster needs ports that are in use: {', '.join(taken)}; end what listens there."
        )


def up() -> None:
    """Make the node's link and give it the node's address."""
    if not _link_exists(NODE_LINK):
        _ip("link", "add", NODE_LINK, "type", "bridge")
    _ip("address", "replace", f"{NODE_ADDRESS}/32", "dev", NODE_LINK)
    _ip("link", "set", NODE_LINK, "up")


def busy_ports() -> list[str]:
    """The needed ports on 127.0.0.1 that something listens on, as ``PORT (component)``."""
    taken = []
    for component, ports in LOOPBACK_PORTS.items():
        for port in ports:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    taken.append(f"{port} ({component})")
    return taken


def down() -> None:
    """Remove links, kube-proxy's tables, host port chains and what the CNI library cached, as far as there are any."""
    for pod_end in pod_links():
        _ip("link", "delete", pod_end, tolerant=True)
    for link in (POD_LINK, NODE_LINK):
        if _link_exists(link):
            _ip("link", "delete", link)
    for family, table in tables():
        _run("nft", "delete", "table", family, table)
    for command in host_port_removals(_run("iptables-save", "-t", "nat", tolerant=True)):
        _run("iptables", "-t", "nat", *command, tolerant=True)
    for cached in cached_results():
        cached.unlink(missing_ok=True)


def links() -> list[str]:
    """The cluster's links that exist now."""
    return [link for link in (NODE_LINK, POD_LINK) if _link_exists(link)] + pod_links()


def pod_links() -> list[str]:
    """The host's ends of pods' links: those attached to the pods' bridge."""
    ports = Path("/sys/class/net") / POD_LINK / "brif"
    return sorted(port.name for port in ports.iterdir()) if ports.is_dir() else []


def tables() -> list[tuple[str, str]]:
    """kube-proxy's packet filter tables that exist now."""
    if packages.program("nft") is None:
        return []
    lines = _run("nft", "list", "tables", tolerant=True).splitlines()
    return [table for table in PROXY_TABLES if f"table {table[0]} {table[1]}" in lines]


def cached_results() -> list[Path]:
    """Files that the CNI library keeps for each pod outside any directory that can be configured."""
    ours = sorted(CNI_CACHE.glob(f"{CNI_NETWORK}-*")) if CNI_CACHE.is_dir() else []
    containers = {path.name.removeprefix(f"{CNI_NETWORK}-").rsplit("-", 1)[0] for path in ours}
    return ours + [
        path for path in sorted(CNI_CACHE.glob("cni-loopback-*")) if any(name in path.name for name in containers)
    ]


def host_port_removals(saved: str) -> list[list[str]]:
    """iptables commands that remove this network's host port rules from what ``iptables-save -t nat`` printed.

    A clean deletion of a pod removes its own; these are for pods that were killed with the node.
    """
    mine = re.compile(rf'^-A CNI-HOSTPORT-DNAT .*"dnat name: \\"{CNI_NETWORK}\\" id: .*-j (CNI-DN-\w+)$', re.MULTILINE)
    chains = [match[1] for match in mine.finditer(saved)]
    return [command for chain in chains for command in (["-F", chain], ["-D", *_rule(saved, chain)], ["-X", chain])]


def _rule(saved: str, chain: str) -> list[str]:
    line = next(
        line for line in saved.splitlines() if line.startswith("-A CNI-HOSTPORT-DNAT") and line.endswith(f"-j {chain}")
    )
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line.removeprefix("-A "))
    return [text.replace('\\"', '"') if text else word for text, word in quoted]


def _link_exists(name: str) -> bool:
    return (Path("/sys/class/net") / name).exists()


def _ip(*arguments: str, tolerant: bool = False) -> None:
    _run("ip", *arguments, tolerant=tolerant)


def _run(name: str, *arguments: str, tolerant: bool = False) -> str:
    command = packages.program(name)
    if command is None:
        if tolerant:
            return ""
        raise ClusterError(f"The program {name} is missing; `python -m localcluster build` installs it.")
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode and not tolerant:
        raise ClusterError(f"`{name} {' '.join(arguments)}` failed (exit {done.returncode}): {done.stderr.strip()}")
    return done.stdout
