"""The hosted pipeline: an ordinary diffusers pipeline, loaded and called without asking it to declare anything."""

from stowplan_agent.pipeline.completeness import LoadError
from stowplan_agent.pipeline.deferred import Deferred
from stowplan_agent.pipeline.hosted import HostedPipeline
from stowplan_agent.pipeline.lazy_loading import deferred_conversions
from stowplan_agent.pipeline.prompts import PROMPT, Prompts
from stowplan_agent.pipeline.request import PipelineRequest

__all__ = ["PROMPT", "Deferred", "HostedPipeline", "LoadError", "PipelineRequest", "Prompts", "deferred_conversions"]
