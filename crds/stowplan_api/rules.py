"""Every CEL rule of the CRDs on one page, with the sentence that a user reads when it refuses.

`kubectl` prints a message after the field's path, so a message says what is allowed and does not repeat the path. The
API server estimates what each rule could cost at most and refuses a CRD that is too dear: every list below is bounded.
"""

from __future__ import annotations

from typing import Final

from stowplan_api.contract import Env

Rule = tuple[str, str]
"""An expression that must hold of ``self``, and the message when it does not."""

NAME_LIMIT: Final = 40
"""Characters of a DiffusionDeployment's name: its children and their pods add suffixes, and labels end at 63."""

NAME: Final[tuple[Rule, ...]] = (
    (
        f"size(self.metadata.name) <= {NAME_LIMIT}",
        f"name must be at most {NAME_LIMIT} characters, for the names of its pods are longer",
    ),
    (
        "self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",
        "name must start with a letter and hold only lower-case letters, digits and hyphens, like a Service's name",
    ),
)

SOURCE: Final[Rule] = (
    "self.matches('^(hf://[^/]+/[^/]+|pvc://[a-z0-9]([a-z0-9.-]*[a-z0-9])?/.*|file:///.+)$')",
    "must be hf://ORG/NAME, pvc://CLAIM/PATH or file:///PATH",
)

SHAPES: Final[Rule] = (
    "self.shapes.all(a, self.shapes.exists_one(b, b.name == a.name))",
    "two shapes have the same name; give each shape its own",
)

EMULATED: Final[Rule] = (
    "self.gpus > 0 || has(self.deviceMemory)",
    "gpus 0 runs on the emulated accelerator, which needs deviceMemory: the capacity of the emulated card",
)

SHARED_DEVICE: Final[Rule] = (
    "!self.gpuResource.endsWith('.shared') || has(self.deviceMemory)",
    "a shared gpuResource needs deviceMemory: the part of the device that each pod may take",
)

PARALLELISM: Final[Rule] = (
    "!has(self.parallelism) || self.resources.gpus == 0"
    " || self.parallelism.ulysses * self.parallelism.ring == self.resources.gpus",
    "parallelism uses another number of devices than resources.gpus; ulysses times ring must be that number",
)

PREFER: Final[Rule] = (
    "!self.keep.exists(name, name in self.neverKeep)",
    "a component is in both keep and neverKeep; name it in one of them",
)

PINNED_MODE: Final[tuple[Rule, ...]] = (
    ("self.mode != 'Pinned' || has(self.placement)", "mode Pinned needs a placement: the entry of every component"),
    ("self.mode == 'Pinned' || !has(self.placement)", "placement is only served in mode Pinned"),
)

PINNED_COMPONENTS: Final[tuple[Rule, ...]] = (
    (
        "self.components.all(c, c.mode == 'Layerwise' ? has(c.groups) && size(c.groups) > 0"
        " : !has(c.groups) && !has(c.looseLifetime))",
        "groups and looseLifetime belong to mode Layerwise, which needs at least one group of layers",
    ),
    (
        "self.components.all(c, c.mode == 'Offload' || (!has(c.prefetch) && !has(c.pinnedBytes)))",
        "prefetch and pinnedBytes belong to mode Offload",
    ),
)

OPERATOR_ENV: Final = tuple(sorted(str(name) for name in Env if name is not Env.FAULTS))
"""Variables of the server container that the operator sets, so a user may not."""

ENV: Final[Rule] = (
    f"!self.env.exists(variable, variable.name in {list(OPERATOR_ENV)})",
    f"env may not set {', '.join(OPERATOR_ENV)}: the operator does",
)

ROLLING_UPDATE: Final[Rule] = (
    "self.maxSurge > 0 || self.maxUnavailable > 0",
    "maxSurge and maxUnavailable are both 0, so no pod could ever be replaced; raise one of them",
)

IMMUTABLE: Final[Rule] = (
    "self == oldSelf",
    "spec is immutable: the operator writes it once, for one pod; delete the object instead",
)
