"""HTTP: images, videos, health, metrics. Knows nothing of how weights move, and imports no torch.

The server is the first thing an agent starts, so that probes and metrics answer while weights still load; requests get
503 until the door opens. One worker thread owns the pipeline: HTTP never waits on the device except for the one client
whose image is being made.
"""
