"""What ``--help`` teaches: examples of each command, and what exit codes mean; the docs reference is made of it."""

from __future__ import annotations

from typing import Final

EXIT_CODES: Final = {
    0: "done; also where status was ended with Ctrl-C",
    1: "something went wrong on the way: a cluster, a file or a device that did not do what it was asked",
    2: "bad input: a flag, a file or a name; the sentence says which, and what would do",
    3: "nothing fits, or what was given does not; what is short is printed all the same",
    70: "agent only: going back failed, so nothing is known to be good and the container starts anew",
}
EXAMPLES: Final = {
    "inventory": (
        ("stowplan inventory ./wan22", "components, layers and bytes, from headers alone"),
        ("stowplan inventory ./wan22 --output json", "the same for a program"),
    ),
    "estimate": (
        ("stowplan estimate ./wan22 --card rtx-4090 --shape 832x480x81", "before anything is measured, and marked so"),
    ),
    "calibrate": (
        ("stowplan calibrate ./wan22 --shape 832x480x81@40 -o r.json", "one watched request gives a record"),
        (
            "stowplan calibrate ./tiny --shape 64x64x5@4 -o r.json --accelerator emulated --device-memory 40Mi "
            "--device-reserve 1Mi",
            "without a GPU",
        ),
    ),
    "plan": (
        ("stowplan plan r.json", "the fastest placement that fits, and why"),
        ("stowplan plan r.json --device-memory 24Gi", "on a card that is not here"),
        ("stowplan plan r.json --current now.json --output json", "with safe moves from what is in force"),
    ),
    "explain": (
        ("stowplan explain r.json --component transformer", "what it lost, and to which limit"),
        ("stowplan explain dd/wan22 -n studio", "the reasons of a deployment in the cluster"),
    ),
    "frontier": (
        ("stowplan frontier r.json -o frontier.html", "which card is worth its price, as a page"),
        ("stowplan frontier r.json --device-memory 24Gi,48Gi,80Gi", "these sizes only"),
    ),
    "report": (
        ("stowplan report r.json -o request.html", "one request, second by second, as a page"),
        (
            "kubectl get --raw /api/v1/namespaces/studio/pods/POD:8000/proxy/residency > pod.json",
            "what a pod knows of itself ...",
        ),
        ("stowplan report pod.json -o pod.html", "... with its start, its proof and its rollbacks"),
    ),
    "cost": (
        ("stowplan cost r.json placements.jsonl", "a JSON line for each placement"),
        ("stowplan plan r.json --output json | stowplan cost r.json - --output table", "of a plan, as a table"),
    ),
    "agent": (("stowplan agent ./wan22 --shape 832x480x81@40 --port 8000", "the pod's process on this machine"),),
    "status": (
        ("stowplan status", "the namespace of the kubeconfig's context, live"),
        ("stowplan status wan22 -n studio --once", "one deployment, once"),
        ("stowplan status -A --json | jq '.deployments[] | select(.ready != \"True\") | .name'", "for a script"),
        ("kubectl stowplan status", "the same as a plug-in of kubectl"),
    ),
}


def examples_of(command: str) -> str:
    """The end of a command's help."""
    lines = [f"$ {text}   # {meaning}" for text, meaning in EXAMPLES[command]]
    return "\n\n".join(("Examples:", *(line.replace("[", r"\[") for line in lines)))


def exit_codes() -> str:
    """The end of the program's own help."""
    return "\n\n".join(("Exit codes:", *(f"{code}: {meaning}." for code, meaning in EXIT_CODES.items())))
