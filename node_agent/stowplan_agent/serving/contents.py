"""What a job made, encoded: in memory for the one client that waits for it, in files for whoever asks later."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stowplan_agent.serving import media
from stowplan_agent.serving.requests import GenerationResult, Kind


@dataclass(frozen=True)
class Content:
    """The images of one request, or its one video."""

    parts: tuple[bytes | Path, ...]
    """Each as its bytes, or as the file that has them."""

    def file(self, index: int) -> Path:
        """The file of one part that is kept."""
        part = self.parts[index]
        assert isinstance(part, Path), "it is kept in memory, for one client that waits"
        return part

    def read(self, index: int) -> bytes:
        """The bytes of one part. Raises FileNotFoundError where its file made room for newer ones."""
        part = self.parts[index]
        return part.read_bytes() if isinstance(part, Path) else part


def opened(parts: Sequence[bytes | Path]) -> list[BinaryIO]:
    """Each part, to be read: whoever removes a file meanwhile takes its name, and not its bytes.

    Raises FileNotFoundError, with none left open, where one made room for newer ones.
    """
    files: list[BinaryIO] = []
    try:
        for part in parts:
            files.append(part.open("rb") if isinstance(part, Path) else io.BytesIO(part))
    except OSError:
        for file in files:
            file.close()
        raise
    return files


def encoded(kind: Kind, result: GenerationResult) -> Sequence[bytes]:
    """A PNG for each image, or one MP4. Raises ValueError for frames that cannot be encoded."""
    if kind == "image":
        return [media.png(frame) for frame in result.frames]
    return [media.mp4(result.frames, result.fps)]


def suffix(kind: Kind) -> str:
    """How files of this kind end."""
    return ".png" if kind == "image" else ".mp4"
