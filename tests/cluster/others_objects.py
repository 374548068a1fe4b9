"""Objects that others bring to a namespace: an autoscaler that scales, a webhook that is in the way."""

from __future__ import annotations

from typing import Any


def autoscaler(minimum: int) -> dict[str, Any]:
    """Scales the deployment ``tiny``, by CPU that nobody measures here."""
    target = {"apiVersion": "stowplan.dev/v1alpha1", "kind": "DiffusionDeployment", "name": "tiny"}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "tiny"},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": minimum,
            "maxReplicas": 5,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def webhook_that_never_answers(namespace: str) -> dict[str, Any]:
    """Makes every create of a Deployment in one namespace fail with status 500."""
    service = {"namespace": namespace, "name": "nobody", "path": "/", "port": 443}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"{namespace}-never-answers"},
        "webhooks": [
            {
                "name": "never.answers.example",
                "clientConfig": {"service": service},
                "rules": [
                    {
                        "apiGroups": ["apps"],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["deployments"],
                    }
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 1,
            }
        ],
    }
