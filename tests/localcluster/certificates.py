"""One certificate authority, one certificate a component, by the openssl program: no Python dependency for it.

Identities are the ones that Kubernetes' own roles and the Node authorizer expect. Keys are P-256: made in milliseconds.
A cluster lives for hours, so a certificate lives for DAYS and is never renewed.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from localcluster.addresses import API_SERVER, CLUSTER_DOMAIN, NODE_ADDRESS, NODE_NAME, SERVICE_ADDRESS
from localcluster.errors import ClusterError

DAYS = 365


@dataclass(frozen=True)
class Identity:
    """Who a certificate speaks for: user ``name``, its ``group``, for a server the ``hosts`` it may be called by."""

    file: str
    name: str
    group: str = ""
    hosts: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The subject in openssl's notation."""
        return (f"/O={self.group}" if self.group else "") + f"/CN={self.name}"

    @property
    def extensions(self) -> str:
        """The X.509 extensions, one a line."""
        # etcd's gateway is a client of its own server with the server's certificate.
        usage = "serverAuth,clientAuth" if self.hosts else "clientAuth"
        lines = ["keyUsage=critical,digitalSignature", f"extendedKeyUsage={usage}"]
        if self.hosts:
            lines.append("subjectAltName=" + ",".join(_alternative(host) for host in self.hosts))
        return "\n".join(lines) + "\n"


ADMIN = Identity("admin", "stowplan-admin", "system:masters")
IDENTITIES = (
    ADMIN,
    Identity(
        "kube-apiserver",
        "kube-apiserver",
        hosts=(
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            f"kubernetes.default.svc.{CLUSTER_DOMAIN}",
            "localhost",
            SERVICE_ADDRESS,
            NODE_ADDRESS,
        ),
    ),
    Identity("etcd", "etcd", hosts=("127.0.0.1",)),
    Identity("kube-apiserver-etcd-client", "kube-apiserver-etcd-client"),
    Identity("kube-apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
    Identity("kube-controller-manager", "system:kube-controller-manager"),
    Identity("kube-scheduler", "system:kube-scheduler"),
    Identity("kube-proxy", "system:kube-proxy"),
    Identity("kubelet", f"system:node:{NODE_NAME}", "system:nodes"),
    Identity("kubelet-server", f"system:node:{NODE_NAME}", "system:nodes", hosts=(NODE_NAME, NODE_ADDRESS)),
)
# Components that reach the API server through a kubeconfig of their own.
CLIENTS = ("admin", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet")


def create(pki: Path) -> None:
    """Write the authority, every certificate, the service account key and the components' kubeconfigs below ``pki``."""
    pki.mkdir(parents=True, mode=0o700)
    _key(pki / "ca.key")
    _openssl(
        "req",
        "-x509",
        "-new",
        "-key",
        pki / "ca.key",
        "-subj",
        "/CN=stowplan-local-cluster",
        "-days",
        DAYS,
        "-out",
        pki / "ca.crt",
    )
    _openssl(
        "genpkey",
        "-quiet",
        "-algorithm",
        "RSA",
        "-pkeyopt",
        "rsa_keygen_bits:2048",
        "-out",
        pki / "service-account.key",
    )
    for identity in IDENTITIES:
        _sign(pki, identity)
    for client in CLIENTS:
        (pki / f"{client}.kubeconfig").write_text(json.dumps(kubeconfig(pki, client), indent=2) + "\n")
    for secret in (*pki.glob("*.key"), *pki.glob("*.kubeconfig")):
        secret.chmod(0o600)


def kubeconfig(pki: Path, client: str) -> dict[str, object]:
    """A kubeconfig of ``client`` with everything embedded, so that the file can be copied anywhere (JSON is YAML)."""
    credentials = {
        "client-certificate-data": _embedded(pki / f"{client}.crt"),
        "client-key-data": _embedded(pki / f"{client}.key"),
    }
    cluster = {"server": API_SERVER, "certificate-authority-data": _embedded(pki / "ca.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "stowplan-local",
        "clusters": [{"name": "stowplan-local", "cluster": cluster}],
        "users": [{"name": client, "user": credentials}],
        "contexts": [{"name": "stowplan-local", "context": {"cluster": "stowplan-local", "user": client}}],
    }


def _sign(pki: Path, identity: Identity) -> None:
    key, request, extensions = (pki / f"{identity.file}.{suffix}" for suffix in ("key", "csr", "ext"))
    _key(key)
    extensions.write_text(identity.extensions)
    _openssl("req", "-new", "-key", key, "-subj", identity.subject, "-out", request)
    authority = ("-CA", pki / "ca.crt", "-CAkey", pki / "ca.key", "-CAcreateserial")
    _openssl(
        "x509",
        "-req",
        "-in",
        request,
        *authority,
        "-days",
        DAYS,
        "-extfile",
        extensions,
        "-out",
        pki / f"{identity.file}.crt",
    )
    request.unlink()
    extensions.unlink()


def _key(path: Path) -> None:
    _openssl("genpkey", "-quiet", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)


def _openssl(*arguments: str | int | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"`openssl {arguments[0]}` failed (exit {done.returncode}): {done.stderr.strip()}")


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _alternative(host: str) -> str:
    return f"IP:{host}" if host.replace(".", "").isdigit() else f"DNS:{host}"
