"""Bytes from one rank's device to another's: the peer link, real and emulated, and the exchange of shares over it."""

from stowplan_agent.ranks.peers.crossing import Crossing
from stowplan_agent.ranks.peers.exchange import Exchange
from stowplan_agent.ranks.peers.interface import PeerLink, PeerRegion
from stowplan_agent.ranks.peers.measurement import measure_peer_rate
from stowplan_agent.ranks.peers.shards import Shards
from stowplan_agent.ranks.peers.shared_slots import give_back_slots, take_slots

__all__ = [
    "Crossing",
    "Exchange",
    "PeerLink",
    "PeerRegion",
    "Shards",
    "give_back_slots",
    "measure_peer_rate",
    "take_slots",
]
