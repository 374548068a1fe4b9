"""What the chair orders and what members answer: versioned JSON, each message with its length before it. Pure.

An order names its round and its step, and an answer repeats both, so that what comes late, twice or not at all is told
apart from what is waited for. Steps of a round only go forward.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

VERSION: Final = 1
"""Of the messages. Supervisor and ranks are of one image, so any other one is a mistake."""
LONGEST: Final = 64 << 20
"""Bytes of one message: a record of a large model is under 1 MiB."""
_LENGTH: Final = struct.Struct("!I")


class Step(StrEnum):
    """What a round consists of, in this order; `ROLL_BACK` in place of what is left of those before it."""

    BEGIN = "begin"
    """Not ordered: each rank says by itself that it serves no more and is ready, and the placement that it is in."""
    MEASURE = "measure"
    """Measure; the answer is what was measured."""
    SOLVE = "solve"
    """For rank 0 only: the target, from what all have measured."""
    APPLY = "apply"
    """Bring the weights to the target, or leave them; the answer is the placement that they are in."""
    VALIDATE = "validate"
    """Prove the target on this rank."""
    COMMIT = "commit"
    """Give up what only a way back needs."""
    ROLL_BACK = "roll back"
    """Go back to the placement of before; the answer is the placement that the weights are in."""
    SERVE = "serve"
    """Serve, in the placement that is named: the same for all, and the one that is in force."""


ORDER_OF_STEPS: Final = tuple(Step)


@dataclass(frozen=True)
class Order:
    """From the chair to one rank. ``body`` is a JSON value."""

    round: int
    step: Step
    body: Any = None

    @property
    def position(self) -> tuple[int, int]:
        """Later orders have larger ones."""
        return self.round, ORDER_OF_STEPS.index(self.step)


@dataclass(frozen=True)
class Answer:
    """From a rank to the chair, to the order of this round and step: what it came to, or why it failed."""

    round: int
    step: Step
    ok: bool
    body: Any = None


class MessageError(ValueError):
    """Bytes that are no message of this version."""


def encode(message: Order | Answer) -> bytes:
    """The message with its length before it. Raises `MessageError` for one that is too long."""
    content: dict[str, Any] = {
        "version": VERSION,
        "round": message.round,
        "step": message.step.value,
        "body": message.body,
    }
    if isinstance(message, Answer):
        content["ok"] = message.ok
    text = json.dumps(content, separators=(",", ":")).encode()
    if len(text) > LONGEST:
        raise MessageError(f"a message of {len(text)} bytes is longer than the {LONGEST} that ranks send each other")
    return _LENGTH.pack(len(text)) + text


def decode(text: bytes) -> Order | Answer:
    """The message of what follows a length. Raises `MessageError`."""
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise MessageError(f"a message of version {content['version']}, and this is {VERSION}")
        number, step, body = int(content["round"]), Step(content["step"]), content["body"]
        return Answer(number, step, bool(content["ok"]), body) if "ok" in content else Order(number, step, body)
    except MessageError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise MessageError(f"{len(text)} bytes that are no message between ranks ({error!r})") from error


class Frames:
    """Cuts a stream of bytes into messages, however the bytes come."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._bytes = bytearray()

    def feed(self, received: bytes) -> Iterator[Order | Answer]:
        """The messages that are whole now. Raises `MessageError`."""
        self._bytes += received
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack(self._bytes[: _LENGTH.size])
            if length > LONGEST:
                raise MessageError(f"a message of {length} bytes is announced, and the longest has {LONGEST}")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                return
            text = bytes(self._bytes[_LENGTH.size : end])
            del self._bytes[:end]
            yield decode(text)
