"""The Debian packages that the node runs on: etcd, containerd, runc, CNI plugins, packet filter tools, busybox.

Each is recognised by a file it brings, so that a machine that has the programs from elsewhere installs nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.progress import say

CNI_PLUGINS = Path("/usr/lib/cni")
BUSYBOX = Path("/bin/busybox")

# package -> a program on PATH, or a path, that shows it is there
EVIDENCE = {
    "etcd-server": "etcd",
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": str(CNI_PLUGINS / "bridge"),
    "nftables": "nft",
    "iptables": "iptables",
    "iproute2": "ip",
    "conntrack": "conntrack",
    "socat": "socat",
    "ebtables": "ebtables",
    "ethtool": "ethtool",
    "openssl": "openssl",
    "mount": "umount",
    "busybox-static": str(BUSYBOX),
}
ADMIN_PATH = "/usr/local/sbin:/usr/sbin:/sbin"


def search_path() -> str:
    """PATH with the administrator's directories, which a user's may lack."""
    return f"{os.environ.get('PATH', os.defpath)}:{ADMIN_PATH}"


def program(name: str) -> str | None:
    """The path of a program, or None."""
    return shutil.which(name, path=search_path())


def present(evidence: str) -> bool:
    """True when the program or path is on this machine."""
    return Path(evidence).exists() if evidence.startswith("/") else program(evidence) is not None


def missing(is_present: Callable[[str], bool] = present) -> tuple[str, ...]:
    """The packages still to install, in a fixed order."""
    return tuple(package for package, evidence in EVIDENCE.items() if not is_present(evidence))


def ensure(log: Path) -> None:
    """Install what is missing by apt-get and nothing else; ClusterError when that does not work."""
    install(missing(), log, "The local cluster")


def install(absent: tuple[str, ...], log: Path, who: str) -> None:
    """Install packages, which ``who`` needs; nothing when there are none. ClusterError when that does not work."""
    if not absent:
        return
    apt = program("apt-get")
    if apt is None:
        raise ClusterError(f"{who} needs the Debian packages {' '.join(absent)} and this machine has no apt-get.")
    say(f"installing Debian packages: {' '.join(absent)}")
    log.parent.mkdir(parents=True, exist_ok=True)
    # RUNLEVEL=1 keeps the packages' own etcd and containerd services from being started.
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with log.open("w") as out:
        for arguments in _apt_steps(absent):
            done = subprocess.run([apt, *arguments], env=environment, stdout=out, stderr=out, check=False)
            if done.returncode:
                raise ClusterError(
                    f"`apt-get {' '.join(arguments)}` failed (exit {done.returncode}); its output is in {log}."
                )


def _apt_steps(names: Iterable[str]) -> tuple[list[str], ...]:
    return ["-qq", "update"], ["-y", "-qq", "--no-install-recommends", "install", *names]
