"""Several ranks of one replica on one node: one process a GPU, one host copy, one decision.

- ``shares``: which bytes of a layer are whose. The only arithmetic of it, and pure.
- ``supervision``: starts the processes, watches them, and ends all of them with one message.
- ``agreement``: all ranks apply a placement or none does. Pure machines, and the sockets that they speak over.
- ``store``: host copies in memory that all ranks share.
- ``peers``: bytes from one rank's device to another's, and the exchange of shares that streams a layer over all links.
- ``neighbourhood``: both, as the weights engine of one rank is given them.
- ``collectives``: the model's own, opened and given up.
- ``company``: all of it, as the lifecycle of one rank sees it; ``alone`` where there is one rank.

Control travels over sockets and one page of shared memory a rank; bytes of weights over the peer link; collectives of
the model are the pipeline's own. None waits for another.
"""
