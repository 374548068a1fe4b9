"""Which start a process makes: its own, or that of one rank among several, which loads what only ranks need."""

from __future__ import annotations

from collections.abc import Callable

from stowplan_agent.lifecycle.progress import Progress
from stowplan_agent.lifecycle.settings import StartSettings
from stowplan_agent.lifecycle.startup import Startup
from stowplan_agent.lifecycle.switch import KillSwitch


def start_of(settings: StartSettings, progress: Progress, *, stop: Callable[[], bool], switch: KillSwitch) -> Startup:
    """Nothing of it runs yet."""
    if settings.company.ranks == 1:
        return Startup(settings, progress, stop=stop, switch=switch)
    from stowplan_agent.lifecycle.together import StartTogether
    from stowplan_agent.ranks.company import Company

    assert isinstance(settings.company, Company), "several ranks are a company"
    return StartTogether(settings, progress, settings.company, stop=stop, switch=switch)
