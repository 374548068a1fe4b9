"""A small record by hand: one component that streams, one that comes in whole, two declared shapes."""

from __future__ import annotations

from typing import Final

from stowplan_api.record import CalibrationRecord

MIB: Final = 1 << 20


def _run(workload: str, passes: int, activations: int, loose: float, layer: float | None = None) -> dict[str, object]:
    layers = {} if layer is None else {"layerSeconds": {"blocks": [layer] * 4}}
    return {
        "workload": workload,
        "passes": passes,
        "activationBytes": [activations],
        "looseSeconds": loose,
        **layers,
    }


RECORD: Final = CalibrationRecord.from_json(
    {
        "model": {"name": "tiny", "pipeline": "P", "fingerprint": "sha256:0"},
        "workloads": [
            {"name": "clip", "width": 64, "height": 64, "frames": 5, "steps": 4},
            {"name": "still", "width": 64, "height": 32, "frames": 1, "steps": 2},
        ],
        "nodes": [{"name": "node", "pinnableBytes": 64 * MIB, "hostBytes": 64 * MIB}],
        "ranks": [
            {
                "rank": 0,
                "node": "node",
                "device": "card",
                "capacityBytes": 32 * MIB,
                "outsideBytes": MIB,
                "reserveBytes": MIB,
                "link": {
                    "pinnedBytesPerSecond": 4e8,
                    "pageableBytesPerSecond": 1e8,
                    "latencySeconds": 0.0,
                    "contention": 1.0,
                },
            }
        ],
        "components": [
            {"name": "denoiser", "looseBytes": MIB, "groups": [{"name": "blocks", "layerBytes": [2 * MIB] * 4}]},
            {"name": "vae", "looseBytes": 2 * MIB},
        ],
        "intervals": [
            {
                "component": "denoiser",
                "entry": "forward",
                "runs": [_run("clip", 4, 4 * MIB, 0.01, 0.02), _run("still", 2, MIB, 0.005, 0.01)],
            },
            {
                "component": "vae",
                "entry": "decode",
                "runs": [_run("clip", 1, 8 * MIB, 0.1), _run("still", 1, 2 * MIB, 0.02)],
            },
        ],
    }
)
