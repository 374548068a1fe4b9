"""``python -m stowplan_api`` writes the generated files; ``--check`` says which ones differ and writes nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stowplan_api.generate import files


def main(arguments: list[str] | None = None) -> int:
    """Write or check the generated files. Returns the exit status: 1 when a check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m stowplan_api", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[2], help="root of the repository")
    options = parser.parse_args(arguments)
    different = [
        name
        for name, content in files().items()
        if not (path := options.root / name).is_file() or path.read_text(encoding="utf-8") != content
    ]
    for name in different:
        print(f"{name}: {'differs; run python -m stowplan_api' if options.check else 'written'}")
        if not options.check:
            path = options.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files()[name], encoding="utf-8")
    return 1 if options.check and different else 0


if __name__ == "__main__":
    sys.exit(main())
