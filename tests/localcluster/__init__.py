"""A real single-node Kubernetes on this machine, for the cluster tests and the demo.

A fake API server accepts what a real one refuses, and no fake kills a container that outgrew its memory. So this
package builds the real components once (cached by version), starts them as ordinary processes under one directory,
and takes everything away again: processes, mounts, links, cgroups, packet filter tables and kernel settings.

It needs Linux, root, Go and the Debian packages that ``packages.py`` names, and imports nothing outside the standard
library, so that it runs before the project's own environment exists.

    PYTHONPATH=tests python -m localcluster start --kubeconfig kubeconfig
    PYTHONPATH=tests python -m localcluster stop

``client.Cluster`` is what tests and programs hold; ``cluster.py`` starts and stops.
"""
