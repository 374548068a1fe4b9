"""How long a prompt may be, counted by the pipeline's own tokenizers; and a prompt that is as long as that.

What an encoder holds grows with its tokens, and in joint attention so does what the denoiser holds. So whatever is
measured is measured at the longest prompt that is allowed, and a longer one is refused before it runs
(https://github.com/vllm-project/vllm-omni/issues/2794). How long that is, pipelines say in two places: the default of
their ``max_sequence_length``, and the length at which a tokenizer cuts. A prompt is too long if none of the encoders
sees all of it: FLUX's CLIP cuts at 77 tokens what its T5 reads to the end.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

PROMPT: Final = "A lighthouse at the edge of the sea, waves breaking on the rocks, late light, slow camera"
"""The words of the prompt of warm-ups, probes and validation."""
UNSTATED: Final = 512
"""Tokens allowed where neither the pipeline nor a tokenizer states any: what most pipelines state."""
UNLIMITED: Final = 10**6
"""A tokenizer's ``model_max_length`` from here on is transformers' way to say that it has none."""
LENGTH: Final = "max_sequence_length"


@dataclass(frozen=True)
class Prompts:
    """The prompts of one pipeline: ``tokenizers`` are those of its components."""

    tokenizers: tuple[Any, ...]
    stated: int | None = None
    """The pipeline's own default of its longest prompt, in tokens."""
    _lock: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @classmethod
    def of(cls, pipeline: Any) -> Prompts:
        """By type: whatever of its components is a tokenizer, and what its signature says."""
        from transformers import PreTrainedTokenizerBase

        parts = pipeline.components.values()
        parameter = inspect.signature(type(pipeline).__call__).parameters.get(LENGTH)
        stated = parameter.default if parameter is not None and type(parameter.default) is int else None
        return cls(tuple(part for part in parts if isinstance(part, PreTrainedTokenizerBase)), stated)

    @cached_property
    def longest(self) -> int | None:
        """The most tokens of a prompt; None for a pipeline that takes no words."""
        return max(map(self._limit, self.tokenizers), default=None)

    def tokens(self, text: str) -> int:
        """How many tokens the tokenizer with the highest limit makes of a text, its marks included."""
        with self._lock:
            return len(self._counter(text, truncation=False, verbose=False)["input_ids"])

    @cached_property
    def probing(self) -> str:
        """The shortest run of words that is at least `longest` tokens long."""
        if self.longest is None:
            return PROMPT

        def text(words: int) -> str:
            return " ".join(itertools.islice(itertools.cycle(PROMPT.split()), words))

        return text(bisect_left(range(self.longest), self.longest, lo=1, key=lambda words: self.tokens(text(words))))

    def refusal(self, *texts: str | None) -> str | None:
        """Why a prompt, or another text that is encoded like it, is too long; None where none of them is."""
        if self.longest is None:
            return None
        for text in filter(None, texts):
            if (count := self.tokens(text)) > self.longest:
                return f"the prompt is {count} tokens long, and this model was measured for {self.longest}; shorten it"
        return None

    @cached_property
    def _counter(self) -> Any:
        """A tokenizer of our own: its settings change with each call, and the pipeline's is in use while we count."""
        return copy.deepcopy(max(self.tokenizers, key=self._limit))

    def _limit(self, tokenizer: Any) -> int:
        length = getattr(tokenizer, "model_max_length", None)
        known = [length] if isinstance(length, int) and 0 < length < UNLIMITED else []
        return min([*known, *([] if self.stated is None else [self.stated])], default=UNSTATED)
