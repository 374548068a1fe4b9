"""The agent's one way into the cluster: it reads who it is, and writes the status of its own ResidencyPlacement.

Nothing here decides. An API server that is away, slow or unwilling never stops a pod from measuring and serving: the
newest status waits and is written when it can be.
"""
