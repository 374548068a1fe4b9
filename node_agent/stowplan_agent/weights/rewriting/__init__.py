"""Rewriting: modules and weights change under management, all of it or nothing.

`rewrite` is the transaction. Weights are changed on the device (`workbench`) by tuner layers (`tuners`); at its end
units are those of the modules as they are then (`renewal`), within the host memory there is (`headroom`); after a
failure modules are as they were (`structure`).
"""
