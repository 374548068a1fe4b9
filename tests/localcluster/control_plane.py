"""etcd, the API server, the controller manager and the scheduler.

The API server listens on the node's own address, so that neither another machine nor a cluster that runs already is
touched. etcd syncs nothing to disk: the data is thrown away with the cluster.
"""

from __future__ import annotations

import json
from pathlib import Path

from localcluster import process, waiting
from localcluster.addresses import (
    API_PORT,
    API_SERVER,
    CLUSTER_DOMAIN,
    CONTROLLER_MANAGER_PORT,
    ETCD_PEER_PORT,
    ETCD_PORT,
    NODE_ADDRESS,
    POD_CIDR,
    SCHEDULER_PORT,
    SERVICE_CIDR,
)
from localcluster.layout import Layout

ETCD_DEADLINE_S = 30.0
API_DEADLINE_S = 90.0
WORKERS_DEADLINE_S = 60.0
READS = ["get", "list", "watch"]
BRISK = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""By default each waits so that a large cluster's server is spared: 5,000 pods would take it four minutes."""
ISSUER = f"https://kubernetes.default.svc.{CLUSTER_DOMAIN}"


def etcd_command(layout: Layout) -> list[str]:
    """etcd 3.4 on loopback, for our certificates only: another API server that finds the port may not join."""
    client, peer = f"https://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
    return [
        "etcd",
        "--name=stowplan",
        f"--data-dir={layout.data / 'etcd'}",
        "--client-cert-auth=true",
        f"--trusted-ca-file={layout.pki / 'ca.crt'}",
        f"--cert-file={layout.pki / 'etcd.crt'}",
        f"--key-file={layout.pki / 'etcd.key'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=stowplan={peer}",
        "--unsafe-no-fsync",
    ]


def api_server_command(layout: Layout, programs: Path) -> list[str]:
    """The API server with Node and RBAC authorization, NodeRestriction, and an audit log of every write."""
    pki = layout.pki
    return [
        str(programs / "kube-apiserver"),
        f"--etcd-servers=https://127.0.0.1:{ETCD_PORT}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'kube-apiserver-etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'kube-apiserver-etcd-client.key'}",
        f"--bind-address={NODE_ADDRESS}",
        f"--advertise-address={NODE_ADDRESS}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        # etcd 3.4 cannot tell how far a watch is: a list by watch would be begun and broken off, again and again.
        "--feature-gates=WatchList=false",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'kube-apiserver.crt'}",
        f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kube-apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kube-apiserver-kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki / 'service-account.key'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        f"--audit-policy-file={layout.config / 'audit-policy.json'}",
        f"--audit-log-path={layout.logs / 'audit.log'}",
    ]


def controller_manager_command(layout: Layout, programs: Path) -> list[str]:
    """The controllers, each with its own service account as on a real cluster."""
    pki = layout.pki
    kubeconfig = pki / "kube-controller-manager.kubeconfig"
    return [
        str(programs / "kube-controller-manager"),
        *_client_flags(kubeconfig),
        "--bind-address=127.0.0.1",
        f"--secure-port={CONTROLLER_MANAGER_PORT}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        f"--cluster-cidr={POD_CIDR}",
        *BRISK,
    ]


def scheduler_command(layout: Layout, programs: Path) -> list[str]:
    """The scheduler with its default profile."""
    kubeconfig = layout.pki / "kube-scheduler.kubeconfig"
    return [
        str(programs / "kube-scheduler"),
        *_client_flags(kubeconfig),
        "--bind-address=127.0.0.1",
        f"--secure-port={SCHEDULER_PORT}",
        "--leader-elect=false",
        *BRISK,
    ]


def audit_policy() -> dict[str, object]:
    """Metadata of every write that is not the cluster's own housekeeping, for tests count who wrote what.

    Of what is only read, the reads of ServiceAccounts outside kube-system: tests hold rights against what they are for.
    """
    housekeeping = [
        {"group": "coordination.k8s.io", "resources": ["leases"]},
        {"group": "authentication.k8s.io"},
        {"group": "authorization.k8s.io"},
    ]
    own = ["system:serviceaccounts:kube-system"]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["*"]},
            {"level": "None", "userGroups": own, "verbs": READS},
            {"level": "None", "userGroups": own, "resources": housekeeping},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
            {"level": "None", "resources": housekeeping},
            {"level": "None", "verbs": READS},
            {"level": "Metadata"},
        ],
    }


def start(layout: Layout, programs: Path) -> None:
    """Start the four, each once what it needs answers; ClusterError with the log's tail when one does not."""
    (layout.config / "audit-policy.json").write_text(json.dumps(audit_policy(), indent=2) + "\n")
    process.start(layout, "etcd", etcd_command(layout))
    context = waiting.administrator(layout)
    health = f"https://127.0.0.1:{ETCD_PORT}/health"
    waiting.until(
        layout, "etcd", "answering its health check", lambda: waiting.answers(health, context), ETCD_DEADLINE_S
    )
    process.start(layout, "kube-apiserver", api_server_command(layout, programs))
    ready = f"{API_SERVER}/readyz"
    waiting.until(layout, "kube-apiserver", "being ready", lambda: waiting.answers(ready, context), API_DEADLINE_S)
    process.start(layout, "kube-controller-manager", controller_manager_command(layout, programs))
    process.start(layout, "kube-scheduler", scheduler_command(layout, programs))


def wait(layout: Layout) -> None:
    """Return once pods can be made: the default service account is there and the scheduler answers."""
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    waiting.until(
        layout,
        "kube-controller-manager",
        "making the default service account",
        lambda: waiting.read(layout, account) is not None,
        WORKERS_DEADLINE_S,
    )
    port = SCHEDULER_PORT
    waiting.until(layout, "kube-scheduler", "listening", lambda: waiting.listens("127.0.0.1", port), WORKERS_DEADLINE_S)


def _client_flags(kubeconfig: Path) -> list[str]:
    return [f"--{role}kubeconfig={kubeconfig}" for role in ("", "authentication-", "authorization-")]
