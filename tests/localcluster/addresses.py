"""The names and addresses of the node; all of them stay on this machine.

The node lives on a bridge made for it, because the API server refuses to advertise a loopback address and some kernels
have no ``dummy`` links. The pods' bridge is not called cni0, which another Kubernetes on the machine may have.
"""

NODE_NAME = "stowplan"
NODE_LINK = "stow0"
NODE_ADDRESS = "10.245.0.1"
POD_LINK = "stowpods0"
POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.96.0.0/16"
SERVICE_ADDRESS = "10.96.0.1"
CLUSTER_DOMAIN = "cluster.local"
CNI_NETWORK = "stowplan"
CGROUP = "stowplan"

API_PORT = 6443
ETCD_PORT = 23790
ETCD_PEER_PORT = 23800
KUBELET_PORT = 10250
KUBELET_HEALTH_PORT = 10248
PROXY_METRICS_PORT = 10249
PROXY_HEALTH_PORT = 10256
CONTROLLER_MANAGER_PORT = 10257
SCHEDULER_PORT = 10259

API_SERVER = f"https://{NODE_ADDRESS}:{API_PORT}"
LOOPBACK_PORTS = {
    "etcd": (ETCD_PORT, ETCD_PEER_PORT),
    "kubelet": (KUBELET_HEALTH_PORT,),
    "kube-proxy": (PROXY_METRICS_PORT, PROXY_HEALTH_PORT),
    "kube-controller-manager": (CONTROLLER_MANAGER_PORT,),
    "kube-scheduler": (SCHEDULER_PORT,),
}
