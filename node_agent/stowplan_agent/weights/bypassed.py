"""What is said when a layer was run around its hooks: by ``layer.forward(...)``, say, which no hook hears.

A streamed layer's weights are on the device only while the layer itself is called; around that they are whole, in host
memory, and never what a slot of the ring happens to hold. So torch refuses to compute with them beside inputs on a GPU,
in words that name neither the layer nor the way out.
"""

from __future__ import annotations

import re
from typing import Final

_ELSEWHERE: Final = re.compile(r"same device|\bcpu\b|weight type", re.IGNORECASE)
"""What torch and its libraries say of an operand that is on the host (torch 2.x)."""


def explain(error: BaseException | None, component: str) -> None:
    """Add the sentence to an error that leaves a component whose layers stream, if it is of that kind. Once."""
    if not isinstance(error, RuntimeError) or not _ELSEWHERE.search(str(error)):
        return
    sentence = (
        f"component {component} streams its layers, whose weights are on the device only while the layer itself is "
        "called: call layer(...) instead of layer.forward(...), or make the component Resident"
    )
    if sentence not in getattr(error, "__notes__", ()):
        error.add_note(sentence)
