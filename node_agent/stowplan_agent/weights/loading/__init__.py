"""Loading: from where a library left the weights to memory of ours, each byte once and on every core.

`source` knows where a unit's bytes are, `files` which of them a file has, `filling` reads many units at a time.
"""
