"""The node: containerd, the kubelet and kube-proxy, with everything of theirs below the cluster's root.

Settings that look arbitrary were each needed; the comments say for what.
"""

from __future__ import annotations

import json
from pathlib import Path

from localcluster import images, network, packages, process, waiting
from localcluster.addresses import (
    CGROUP,
    CLUSTER_DOMAIN,
    KUBELET_HEALTH_PORT,
    KUBELET_PORT,
    NODE_ADDRESS,
    NODE_NAME,
    POD_CIDR,
    PROXY_HEALTH_PORT,
    PROXY_METRICS_PORT,
)
from localcluster.layout import Layout

CONTAINERD_DEADLINE_S = 30.0
NODE_DEADLINE_S = 90.0


def containerd_configuration(layout: Layout) -> str:
    """containerd 1.6's TOML: own root, state, socket, runc state, sandbox image and CNI directories."""
    # restrict_oom_score_adj: where this process lacks CAP_SYS_RESOURCE, every sandbox would fail with
    #   "can't get final child's PID from pipe: EOF", because runc may not lower the score.
    # netns_mounts_under_state_dir: else pods' network namespaces are mounted below /var/run/netns.
    return f"""\
version = 2
root = "{layout.data / "containerd"}"
state = "{layout.run / "containerd"}"

[grpc]
  address = "{layout.containerd_socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.data / "opt"}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.SANDBOX}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{packages.CNI_PLUGINS}"
  conf_dir = "{layout.config / "cni"}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{layout.run / "runc"}"
"""


def kubelet_configuration(layout: Layout) -> dict[str, object]:
    """The KubeletConfiguration; pods live in the cgroup of the cluster's own name, which stop removes."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": NODE_ADDRESS,
        "port": KUBELET_PORT,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": KUBELET_HEALTH_PORT,
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet-server.key"),
        "clusterDomain": CLUSTER_DOMAIN,
        "podLogsDir": str(layout.data / "pod-logs"),
        "volumePluginDir": str(layout.data / "volume-plugins"),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # The machine's disk and memory belong to its user: no eviction, no image collection, no reservation.
        "localStorageCapacityIsolation": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "imageGCHighThresholdPercent": 100,
        "imageMaximumGCAge": "0s",
        # Lowering a score needs CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        "serializeImagePulls": False,
        # Its iptables chains serve a kube-proxy on iptables, and nothing would remove them.
        "makeIPTablesUtilChains": False,
    }


def kubelet_command(layout: Layout, programs: Path) -> list[str]:
    """The kubelet at the node's address: it refuses to register a loopback one."""
    return [
        str(programs / "kubelet"),
        f"--config={layout.config / 'kubelet.json'}",
        f"--kubeconfig={layout.pki / 'kubelet.kubeconfig'}",
        f"--root-dir={layout.data / 'kubelet'}",
        f"--cert-dir={layout.data / 'kubelet' / 'pki'}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={NODE_ADDRESS}",
    ]


def proxy_command(layout: Layout, programs: Path) -> list[str]:
    """kube-proxy on nftables; it may not change the machine's connection tracking limit."""
    return [
        str(programs / "kube-proxy"),
        f"--kubeconfig={layout.pki / 'kube-proxy.kubeconfig'}",
        f"--hostname-override={NODE_NAME}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={POD_CIDR}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        f"--healthz-bind-address=127.0.0.1:{PROXY_HEALTH_PORT}",
        f"--metrics-bind-address=127.0.0.1:{PROXY_METRICS_PORT}",
        "--oom-score-adj=0",
    ]


def start_containerd(layout: Layout) -> None:
    """Start containerd and return when its socket answers: the kubelet exits at once without it."""
    (layout.config / "containerd.toml").write_text(containerd_configuration(layout))
    (layout.config / "cni").mkdir(exist_ok=True)
    (layout.config / "cni" / "10-stowplan.conflist").write_text(network.cni_configuration(layout))
    process.start(layout, "containerd", ["containerd", "--config", str(layout.config / "containerd.toml")])
    waiting.until(
        layout, "containerd", "serving its socket", lambda: images.containerd_answers(layout), CONTAINERD_DEADLINE_S
    )


def start_kubelet(layout: Layout, programs: Path) -> None:
    """Start the kubelet and kube-proxy; ``wait`` says when they are done."""
    (layout.config / "kubelet.json").write_text(json.dumps(kubelet_configuration(layout), indent=2) + "\n")
    process.start(layout, "kubelet", kubelet_command(layout, programs))
    process.start(layout, "kube-proxy", proxy_command(layout, programs))


def wait(layout: Layout) -> None:
    """Return once the node is Ready and Service addresses lead somewhere."""
    waiting.until(layout, "kubelet", "the node becoming Ready", lambda: is_ready(layout), NODE_DEADLINE_S)
    health = f"http://127.0.0.1:{PROXY_HEALTH_PORT}/healthz"
    waiting.until(layout, "kube-proxy", "answering its health check", lambda: waiting.answers(health), NODE_DEADLINE_S)


def is_ready(layout: Layout) -> bool:
    """True when the API server has the node's Ready condition True and no taint keeps pods away."""
    node = waiting.read(layout, f"/api/v1/nodes/{NODE_NAME}")
    if node is None:
        return False
    conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
