"""A request shared by several devices: each has a part of the sequence of tokens, by diffusers' context parallelism.

Ulysses exchanges heads of attention, ring passes on keys and values. Which networks can do it is said by diffusers
(``_cp_plan``); they gather their output, so that all else of a pipeline runs on every rank as it does on one. Tokens
that do not divide by the devices are shared unevenly: diffusers' own way of doing that asks all ranks for their numbers
at each attention, so it is taken only where it is needed. diffusers has no parallel guidance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from stowplan_agent.pipeline.completeness import LoadError
from stowplan_api.diffusion_deployment import Parallelism

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

NATIVE_WITH_SUMS = "_native_cudnn"
"""The attention of torch's own that gives what ring needs beside its output; CUDA only."""


def parallel_networks(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Those of a pipeline's networks that can share a sequence."""
    return {name: module for name, module in modules.items() if getattr(module, "_cp_plan", None) is not None}


def choose(wanted: Parallelism | None, heads: Mapping[str, int], ranks: int, *, ring: bool) -> Parallelism:
    """How so many ranks share a request. ``heads``: of each network that can; ``ring``: whether the device has it.

    Ulysses by itself where the heads can be dealt out to all ranks, ring for the rest. Raises `LoadError` in one
    sentence with the way out.
    """
    if not heads:
        raise LoadError(
            f"none of this pipeline's networks can share its sequence among {ranks} devices with this version of "
            "diffusers; set resources.gpus to 1, and more replicas"
        )
    if wanted is None:
        divisors = [one for one in range(1, ranks + 1) if ranks % one == 0]
        dealt = max(one for one in divisors if all(_fits(count, one) for count in heads.values()))
        wanted = Parallelism(ulysses=dealt, ring=ranks // dealt)
    for name, count in heads.items():
        if not _fits(count, wanted.ulysses):
            raise LoadError(
                f"{name} has {count} heads of attention, which cannot be dealt out to {wanted.ulysses} devices; set a "
                "smaller parallelism.ulysses, with parallelism.ring for the rest, or fewer resources.gpus"
            )
    if wanted.ring > 1 and not ring:
        raise LoadError(
            f"ring attention over {wanted.ring} devices needs a GPU, and these are emulated; set parallelism.ulysses, "
            f"or no more devices than {min(heads.values())}"
        )
    return wanted


def share_with(
    modules: Mapping[str, nn.Module], wanted: Parallelism | None, rank: int, ranks: int, device: torch.device
) -> SequenceParallel:
    """How one of several ranks shares the requests of a pipeline; nothing is changed yet. Raises `LoadError`."""
    networks = parallel_networks(modules)
    heads = {name: int(getattr(module, "config").num_attention_heads) for name, module in networks.items()}  # noqa: B009
    return SequenceParallel(networks, choose(wanted, heads, ranks, ring=device.type == "cuda"), rank, device)


def _fits(heads: int, ranks: int) -> bool:
    """diffusers pads the heads of the last rank, which must keep one of its own."""
    each = -(-heads // ranks)
    return each * ranks - heads < each


class SequenceParallel:
    """The networks of one rank that share their sequence, once `enable` has been called."""

    def __init__(
        self, networks: Mapping[str, nn.Module], parallelism: Parallelism, rank: int, device: torch.device
    ) -> None:
        """Nothing is changed yet."""
        self._device = device
        self.parallelism = parallelism
        self._networks = networks
        self._rank = rank
        self._configurations: list[Any] = []

    def enable(self, mesh: DeviceMesh) -> None:
        """Share from now on. Called again: over another mesh, in place of one that was given up."""
        first = not self._configurations
        for module in self._networks.values() if first else ():
            self._configurations.append(self._enable(module))
        for configuration in self._configurations:
            configuration.setup(self._rank, mesh.size(), self._device, mesh=mesh)

    def _enable(self, module: Any) -> Any:
        """What ``enable_parallelism`` of diffusers does, which asks for a GPU."""
        from diffusers.hooks.context_parallel import apply_context_parallel
        from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig

        ring, ulysses = self.parallelism.ring, self.parallelism.ulysses
        uneven = ring == 1 and ulysses > 1 and module.config.num_attention_heads % ulysses > 0
        context = ContextParallelConfig(
            ring_degree=ring, ulysses_degree=ulysses, ulysses_anything=uneven, ring_anything=ulysses == 1
        )
        whole = ParallelConfig(context_parallel_config=context)
        if ring > 1:
            module.set_attention_backend(NATIVE_WITH_SUMS)
        module._parallel_config = whole
        for one in module.modules():
            processor = getattr(one, "processor", None)
            if processor is not None and hasattr(processor, "_parallel_config"):
                processor._parallel_config = whole
        apply_context_parallel(module, context, module._cp_plan)
        if ring == 1 and not uneven:
            _share_unevenly_where_needed(module, context)
        return whole


def _share_unevenly_where_needed(module: nn.Module, context: Any) -> None:
    """For each call of the network: evenly, until something is split that does not divide."""
    from diffusers.hooks.context_parallel import ContextParallelSplitHook

    class Split(ContextParallelSplitHook):  # type: ignore[misc, unused-ignore]
        def _prepare_cp_input(self, x: Any, cp_input: Any) -> Any:
            if x.dim() == (cp_input.expected_dims or x.dim()) and x.size(cp_input.split_dim) % context._mesh.size():
                context.ulysses_anything = True
            return super()._prepare_cp_input(x, cp_input)

    def evenly(*_: Any) -> None:
        context.ulysses_anything = False

    module.register_forward_pre_hook(evenly)
    for one in module.modules():
        registry = getattr(one, "_diffusers_hook", None)
        for hook in registry.hooks.values() if registry is not None else ():
            if isinstance(hook, ContextParallelSplitHook):
                hook.__class__ = Split
