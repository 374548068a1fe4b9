"""``kubectl_complete-stowplan``: what kubectl runs to complete ``kubectl stowplan ...`` in a shell.

kubectl gives the words behind ``stowplan``, the last of them unfinished, and wants one candidate a line and then a
colon with a number: 0, the shell may complete names of files where there is no candidate. The candidates are those of
the program's own completion for bash.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import redirect_stdout, suppress
from typing import Final

from stowplan_agent.cli import app

FILES_TOO: Final = ":0"


def complete() -> None:
    """Print the candidates for the words of this process' command line."""
    words = ["stowplan", *sys.argv[1:]]
    os.environ["_STOWPLAN_COMPLETE"] = "complete_bash"
    os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = " ".join(words), str(len(words) - 1)
    with redirect_stdout(io.StringIO()) as said, suppress(SystemExit):
        app(prog_name="stowplan")
    for candidate in said.getvalue().split():
        print(candidate)
    print(FILES_TOO)
