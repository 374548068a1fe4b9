"""A start that need not measure: record, validated placement and reference of an earlier one on the same kind of pod.

Nothing stored is trusted: a placement from a file is proven again before it serves, and whatever differs, cannot be
read or fails leads to the full sequence, with the reason said.
"""

from stowplan_agent.lifecycle.warm_start.attempt import WarmStart
from stowplan_agent.lifecycle.warm_start.key import differences, facts_of, fingerprint_of
from stowplan_agent.lifecycle.warm_start.store import Store
from stowplan_agent.lifecycle.warm_start.stored_start import StepReference, StoredCall, StoredStart

__all__ = [
    "StepReference",
    "Store",
    "StoredCall",
    "StoredStart",
    "WarmStart",
    "differences",
    "facts_of",
    "fingerprint_of",
]
