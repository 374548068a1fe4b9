"""The longest prompt of a pipeline, from its tokenizers and its signature; a prompt as long; and what is longer."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan_agent.pipeline.prompts import PROMPT, UNSTATED, Prompts


class Words:
    """A tokenizer of words, with a mark at the end."""

    def __init__(self, length: Any, marks: int = 1) -> None:
        self.model_max_length = length
        self._marks = marks

    def __call__(self, text: str, *, truncation: bool, verbose: bool) -> dict[str, list[int]]:
        assert not truncation and not verbose
        return {"input_ids": [0] * (len(text.split()) + self._marks)}


@pytest.mark.parametrize(
    ("lengths", "stated", "longest"),
    [
        ((512,), None, 512),
        ((512,), 226, 226),
        ((77,), 512, 77),  # the tokenizer cuts first
        ((77, 512), 512, 512),  # one of two encoders sees it all
        ((int(1e30),), 300, 300),
        ((int(1e30),), None, UNSTATED),
        ((None,), None, UNSTATED),
        ((77, 77), None, 77),
        ((), None, None),
        ((), 512, None),  # the pipeline of a class picture
    ],
)
def test_the_longest_prompt_is_what_one_encoder_sees_to_its_end(
    lengths: tuple[Any, ...], stated: int | None, longest: int | None
) -> None:
    assert Prompts(tuple(Words(length) for length in lengths), stated).longest == longest


@pytest.mark.parametrize("longest", [2, 3, 10, 77, 512])
def test_what_is_measured_is_as_long_as_anything_may_be_and_no_word_longer(longest: int) -> None:
    prompts = Prompts((Words(longest),))
    assert prompts.tokens(prompts.probing) == longest
    assert PROMPT.startswith(prompts.probing) or prompts.probing.startswith(PROMPT)


def test_m4_a_longer_prompt_is_refused_with_its_numbers() -> None:
    prompts = Prompts((Words(77), Words(512)), 512)
    assert prompts.refusal("a fox " * 255, None) is None
    refusal = prompts.refusal("a fox", "b " * 100_000)
    assert refusal == "the prompt is 100001 tokens long, and this model was measured for 512; shorten it"


def test_a_pipeline_without_words_refuses_none() -> None:
    prompts = Prompts(())
    assert (prompts.refusal("a " * 100_000), prompts.probing) == (None, PROMPT)
