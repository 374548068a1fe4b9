"""The one exception of this package: its text is a sentence for a user, naming the thing, the limit and the way out."""


class ClusterError(RuntimeError):
    """Something the local cluster needs is missing or did not happen."""
