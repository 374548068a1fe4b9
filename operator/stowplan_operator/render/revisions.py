"""What a new version renders otherwise of the same spec waits for the next change of that spec.

A changed pod template replaces every pod, and an upgrade of the operator is no reason to measure a fleet anew. So what
later versions add to a template is a revision of it, and a Deployment whose pods are of an earlier revision of the very
same template keeps it. The next change of the spec, or of its recalibrate annotation, brings the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from stowplan_api.contract import LABEL_TEMPLATE
from stowplan_operator.kinds import Json
from stowplan_operator.render.grace import with_grace
from stowplan_operator.render.naming import digest

REVISIONS: Final[tuple[Callable[[Json], Json], ...]] = (with_grace, lambda template: template)
"""Newest first. The last is what version 0.1 rendered."""


def revised(template: Json, standing: str) -> Json:
    """The template with its hash as a label, in the revision that hashes to ``standing``, or else in the newest."""
    labelled = [_labelled(revision(template)) for revision in REVISIONS]
    return next((one for one in labelled if one["metadata"]["labels"][LABEL_TEMPLATE] == standing), labelled[0])


def _labelled(template: Json) -> Json:
    metadata = template["metadata"]
    rest = {name: value for name, value in metadata["labels"].items() if name != LABEL_TEMPLATE}
    unlabelled = template | {"metadata": metadata | {"labels": rest}}
    return unlabelled | {"metadata": metadata | {"labels": rest | {LABEL_TEMPLATE: digest(unlabelled)}}}
