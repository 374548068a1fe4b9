"""All ranks go from one placement to another, or none does: a chair that orders, members that do, their messages."""

from stowplan_agent.ranks.agreement.chair import Chair, ChairPhase
from stowplan_agent.ranks.agreement.deadlines import Deadlines
from stowplan_agent.ranks.agreement.member import Member, MemberPhase
from stowplan_agent.ranks.agreement.messages import Answer, MessageError, Order, Step

__all__ = ["Answer", "Chair", "ChairPhase", "Deadlines", "Member", "MemberPhase", "MessageError", "Order", "Step"]
