"""Before any measurement: what a card is said to do, and what a checkpoint would take on it. No torch.

Everything here is an estimate and says so. A measured record replaces it.
"""

from stowplan_agent.estimate.cards import CARDS, Card, card_named

__all__ = ["CARDS", "Card", "card_named"]
