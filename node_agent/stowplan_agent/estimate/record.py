"""A record that nobody measured: the same document as a calibration's, from headers, configs and the table of cards.

It answers "would this card do?" before there is one, and nothing more. Its provenance begins with ESTIMATE, its device
is called estimated, and it is marked ``extrapolated``, so that every plan keeps the larger reserve of 10 %. Formulas
are in `work` and `schedule`. Assumed besides: a prompt of as many tokens as stated; encoders run once a guidance pass;
joint attention (over picture and prompt) where a layer has tensors for added or context projections; links of 54.9 and
25 GB/s pinned, 6.6 and 6 GB/s pageable for PCIe 5 (measured, PLANNING.md) and PCIe 4 (as the project's records assume);
contention 1.05; 614 MiB of context; four fifths of host memory can be pinned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from stowplan_agent.estimate.cards import Card
from stowplan_agent.estimate.schedule import passes_a_step, passes_of
from stowplan_agent.estimate.work import (
    Canvas,
    decode_activations,
    decode_seconds,
    layer_seconds,
    loose_seconds,
    token_activations,
    width_of,
)
from stowplan_agent.inventory import Checkpoint, ComponentInventory, Inventory, frame_contract
from stowplan_api.record import (
    CalibrationRecord,
    Component,
    Group,
    Interval,
    Link,
    ModelIdentity,
    Node,
    Rank,
    Run,
    Workload,
)

LINKS: Final = {4: (25.0e9, 6.0e9), 5: (54.9e9, 6.6e9)}
"""By generation of PCIe: pinned and pageable bytes a second."""
CONTEXT: Final = 614 << 20
VAES: Final = ("Autoencoder", "AsymmetricAutoencoder", "VQModel")
JOINT: Final = ("add_", "context", "txt_")


def estimated_record(
    checkpoint: Checkpoint,
    inventory: Inventory,
    card: Card,
    workload: Workload,
    *,
    host_bytes: int | None = None,
    remark: str | None = None,
) -> CalibrationRecord:
    """The estimated record of ``checkpoint`` for one ``card``. Bytes and seconds.

    ``inventory`` must be of ``bfloat16``, and its ``remark`` goes into the provenance. Without ``host_bytes`` the node
    has room to pin all weights.
    """
    pinned, pageable = LINKS[card.pcie]
    host = host_bytes if host_bytes is not None else -(-inventory.total_bytes * 5 // 4)
    link = Link(
        pinned_bytes_per_second=pinned, pageable_bytes_per_second=pageable, latency_seconds=2e-5, contention=1.05
    )
    parts = _Parts(checkpoint, inventory, card, workload)
    return CalibrationRecord(
        model=ModelIdentity(name=inventory.model, pipeline=inventory.pipeline, fingerprint=inventory.fingerprint),
        provenance=(
            f"ESTIMATE: nothing was measured; computed for {card.name} from the checkpoint's headers and the card's "
            "published numbers, so seconds may be off by half; measure with stowplan calibrate",
            "formulas: 2 operations a weight and token, attention quadratic, at 55 % of dense bf16 throughput; "
            "activations 12 numbers a token and width; decoding by convolution at 10 % (estimate/work.py)",
            *parts.notes,
            *([] if remark is None else [f"weights: {remark}"]),
            *([] if host_bytes is not None else ["assumed: host memory with room to pin all weights"]),
        ),
        extrapolated=True,
        workloads=(workload,),
        nodes=(Node(name="estimated", pinnable_bytes=host * 4 // 5, host_bytes=host),),
        ranks=(
            Rank(
                rank=0,
                node="estimated",
                device=f"{card.name} (estimated)",
                capacity_bytes=card.memory_bytes,
                outside_bytes=CONTEXT,
                link=link,
            ),
        ),
        components=tuple(_component(part) for part in inventory.components),
        intervals=parts.intervals(),
    )


def _component(part: ComponentInventory) -> Component:
    groups = tuple(Group(name=group.name, layer_bytes=group.layer_bytes) for group in part.groups)
    return Component(name=part.name, loose_bytes=part.loose_bytes, groups=groups)


@dataclass
class _Parts:
    """The intervals of one request: what encodes, what denoises, what decodes."""

    checkpoint: Checkpoint
    inventory: Inventory
    card: Card
    workload: Workload

    def __post_init__(self) -> None:
        self.configs = {part.name: part.config for part in self.checkpoint.weighted}
        self.vaes = [part for part in self.inventory.components if part.class_name.startswith(VAES)]
        rest = [part for part in self.inventory.components if part not in self.vaes]
        self.denoisers = [
            part for part in rest if part.library == "diffusers" and "in_channels" in self.configs[part.name]
        ]
        self.encoders = [part for part in rest if part not in self.denoisers]
        names = [part.name for part in self.denoisers]
        self.passes = passes_of(self.checkpoint, names, self.configs, self.workload.steps)
        self.canvas, self.side = self._canvas()

    @property
    def notes(self) -> list[str]:
        made = ", ".join(f"{name} {count}" for name, count in self.passes.items()) or "none found"
        return [f"passes, from configs: {made}; prompt of {self.workload.prompt_tokens} tokens"]

    def intervals(self) -> tuple[Interval, ...]:
        prompt = self.workload.prompt_tokens or 1
        guided = max((passes_a_step(self.configs[part.name]) for part in self.denoisers), default=1)
        found = [self._tokens(part, "encode", guided, prompt) for part in self.encoders]
        found += [self._tokens(part, "forward", self.passes[part.name], self._seen(part)) for part in self.denoisers]
        found += [self._decode(part) for part in self.vaes]
        picture = self.canvas.picture_bytes
        return (*found, self._interval(None, "postprocess", 1, 2 * picture, picture / LINKS[self.card.pcie][1], {}))

    def _canvas(self) -> tuple[Canvas, int]:
        """The picture, and the pixels along one side of a token."""
        contract = frame_contract(self.checkpoint)
        patches = [_patch(self.configs[part.name]) for part in self.denoisers] or [1]
        scale = max(contract.side // max(patches), 1)
        shape = self.workload
        canvas = Canvas(shape.width, shape.height, shape.frames, scale, contract.temporal or 1)
        return canvas, contract.side

    def _seen(self, part: ComponentInventory) -> int:
        """Tokens that a denoiser attends to at once."""
        canvas = self.canvas
        tokens = (canvas.width // self.side) * (canvas.height // self.side) * canvas.latent_frames
        joint = any(word in name for group in part.groups for name, _ in group.common for word in JOINT)
        return max(tokens, 1) + (self.workload.prompt_tokens or 0 if joint else 0)

    def _tokens(self, part: ComponentInventory, entry: str, passes: int, tokens: int) -> Interval:
        widths = {group.name: width_of(group.common) for group in part.groups}
        seconds = {
            group.name: tuple(
                layer_seconds(self.card, nbytes, tokens, widths[group.name]) for nbytes in group.layer_bytes
            )
            for group in part.groups
        }
        activations = token_activations(tokens, max(widths.values(), default=0))
        return self._interval(
            part.name, entry, passes, activations, loose_seconds(self.card, part.loose_bytes), seconds
        )

    def _decode(self, part: ComponentInventory) -> Interval:
        tensors = next(one.tensors for one in self.checkpoint.weighted if one.name == part.name)
        seconds = decode_seconds(self.card, tensors, self.canvas)
        activations = decode_activations(tensors, self.canvas)
        layers = {group.name: tuple(0.0 for _ in group.layer_bytes) for group in part.groups}
        return self._interval(part.name, "decode", 1, activations, seconds, layers)

    def _interval(
        self, name: str | None, entry: str, passes: int, activations: int, loose: float,
        layers: dict[str, tuple[float, ...]],
    ) -> Interval:  # fmt: skip
        run = Run(
            workload=self.workload.name,
            passes=passes,
            activation_bytes=(activations,),
            loose_seconds=loose,
            layer_seconds=layers,
        )
        return Interval(component=name, entry=entry, runs=(run,))


def _patch(config: Any) -> int:
    """Latents along one side of a token, as a config says it: a number, or one number a dimension."""
    patch = config.get("patch_size")
    if isinstance(patch, list) and patch and type(patch[-1]) is int and patch[-1] > 0:
        return int(patch[-1])
    return patch if type(patch) is int and patch > 0 else 1
