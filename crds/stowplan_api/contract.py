"""The names that operator, agent and chart agree on, once.

A label, an environment variable or a reason that two programs must spell alike is written here and nowhere else. All of
it is public: users select on the labels, alerts and scripts match the reasons. Renaming one is a breaking change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from stowplan_api.model import GROUP

READINESS_GATE: Final = f"{GROUP}/placement-validated"
"""Pod condition that only the operator writes; True means: this pod, this boot and this generation are validated."""

LABEL_DEPLOYMENT: Final = f"{GROUP}/deployment"
"""Name of the DiffusionDeployment, on every child and on its pods."""
LABEL_TEMPLATE: Final = f"{GROUP}/template"
"""Hash of the rendered pod template, on pods: which rollout a pod belongs to."""
ANNOTATION_GENERATION: Final = f"{GROUP}/generation"
"""Generation of the DiffusionDeployment, on the Deployment: when its pod template was rendered last."""
ANNOTATION_RECALIBRATE: Final = f"{GROUP}/recalibrate"
"""On a DiffusionDeployment, by a user: a value that was not there before has every pod measure anew. The operator
repeats it on the pod template, on the stored starts (which it empties), and, once done, in status.recalibrated."""
ANNOTATION_STORED_BY: Final = f"{GROUP}/stored-by"
"""Which boot the newest stored start is of, on the ConfigMap: time of its validation, pod, boot id."""

SERVER_CONTAINER: Final = "server"
HTTP_PORT_NAME: Final = "http"
AGENT_COMMAND: Final = ("stowplan", "agent")
AGENT_ROLE: Final = "stowplan-agent"
"""The ClusterRole of the chart that the operator binds, in the pod's namespace only, to each agent's ServiceAccount."""
AGENT_ACCOUNT_SUFFIX: Final = "-agent"


def agent_account(deployment: str) -> str:
    """Name of the ServiceAccount (and of its RoleBinding) that the pods of one DiffusionDeployment run as."""
    return deployment + AGENT_ACCOUNT_SUFFIX


class Env(StrEnum):
    """Environment variables of the server container, set by the operator and read by the agent."""

    SPEC = "STOWPLAN_SPEC"
    """JSON of DiffusionDeploymentSpec without replicas, paused, podTemplate and rollout."""
    DEPLOYMENT = "STOWPLAN_DEPLOYMENT"
    NAMESPACE = "STOWPLAN_NAMESPACE"
    POD_NAME = "STOWPLAN_POD_NAME"
    POD_UID = "STOWPLAN_POD_UID"
    MEMORY_LIMIT = "STOWPLAN_MEMORY_LIMIT"
    """Bytes, from resourceFieldRef limits.memory."""
    ACCELERATOR = "STOWPLAN_ACCELERATOR"
    """``emulated`` when spec.resources.gpus is 0; absent otherwise."""
    FAULTS = "STOWPLAN_FAULTS"
    """Faults to inject, for tests of the rollback; set through serving.env, never by the operator."""


RECORD_DIR: Final = "STOWPLAN_RECORD_DIR"
"""Environment variable of the server container: directory of stored starts, one file a fingerprint. It may be read-only
(a ConfigMap's mount), and may be absent: then every start measures anew. Through serving.env it may be any other."""
GRACE_SECONDS: Final = "STOWPLAN_GRACE_SECONDS"
"""Environment variable of the server container: seconds from SIGTERM to SIGKILL. Set by the operator where the pod's
template says how many, unless serving.env has it."""
STORED_START_PATH: Final = "/v1/stored-start"
"""GET: the stored start that this boot proved, whose ``fingerprint`` names its file; 404 while there is none."""
ROLLBACK_FAILED_EXIT: Final = 70
"""Exit code of an agent whose rollback failed (EX_SOFTWARE of sysexits.h): nothing is known to be good any more, so the
container starts anew."""

SPEC_FIELDS_NOT_SENT: Final = ("replicas", "paused", "podTemplate", "rollout")
"""Left out of Env.SPEC: they do not change what a pod does, so they must not restart one."""


class Manager(StrEnum):
    """Field managers of server-side apply: one a purpose."""

    WORKLOAD = "stowplan-workload"
    STATUS = "stowplan-status"
    GATE = "stowplan-gate"
    AGENT = "stowplan-agent"


class PlacementCondition(StrEnum):
    """Condition types of a ResidencyPlacement; all written by the agent."""

    CALIBRATED = "Calibrated"
    """This boot has a record of this model, measured or reused."""
    APPLIED = "Applied"
    """The planned placement is in force (False after a rollback)."""
    VALIDATED = "Validated"
    """The placement in force was proven in this boot. The gate follows this one."""
    ROLLED_BACK = "RolledBack"
    """A placement of this boot was taken back; the reason says why."""
    READY = "Ready"
    """This boot serves."""
    DRIFTED = "Drifted"
    """Served requests take other seconds or bytes than was promised; absent until enough of them were served."""


class PlacementReason(StrEnum):
    """Reasons of a ResidencyPlacement's conditions."""

    STARTING = "Starting"
    """Every condition, from the first write of a boot until its phase has an answer."""
    MEASURED = "Measured"
    """Calibrated=True: a probe at the declared shape."""
    EXTRAPOLATED = "Extrapolated"
    """Calibrated=True: the probe ran at a smaller shape; larger reserves apply. Applied=False: no plan is made from
    what was not measured; the seed placement is served if it proves itself at the declared shape."""
    REUSED = "Reused"
    """Calibrated=True: the record of an earlier start on the same kind of machine, whose placement proved itself."""
    NOT_REUSED = "NotReused"
    """Calibrated=Unknown: no stored start is of this fingerprint, or it does not hold here; everything is measured."""
    STATIC_MODE = "StaticMode"
    """Applied=False: mode Static plans nothing; the seed placement is proven and served."""
    RESIDENCY_DISABLED = "ResidencyDisabled"
    """Applied=False: the agent's environment disables the adjustment."""
    SHARED_DEVICE = "SharedDevice"
    """Calibrated=False: a device that others use too, by MPS or by what they hold, and no device memory is stated."""
    MODEL_INVALID = "ModelInvalid"
    """Calibrated=False: the checkpoint cannot be read or loaded; the message names the file."""
    SPEC_INVALID = "SpecInvalid"
    """Calibrated=False: the model refuses the spec (a shape, a dtype, a component name)."""
    OUT_OF_MEMORY = "OutOfMemory"
    """Calibrated=False or RolledBack=True: device or host memory ran out."""
    INFEASIBLE = "Infeasible"
    """Applied=False: no placement fits; the message says which interval is how many bytes short and what would fit."""
    PLAN_APPLIED = "PlanApplied"
    """Applied=True."""
    ALREADY_OPTIMAL = "AlreadyOptimal"
    """Applied=True: the seed placement is the plan, so nothing moved."""
    PINNED = "Pinned"
    """Applied=True: the user's own placement."""
    STORED_PLACEMENT = "StoredPlacement"
    """Applied=True: the placement that an earlier start proved, loaded straight to and proven again."""
    APPLY_FAILED = "ApplyFailed"
    """RolledBack=True: a move failed."""
    OUTPUT_DIFFERS = "OutputDiffers"
    """RolledBack=True: not bit-equal to the reference."""
    TOO_SLOW = "TooSlow"
    """RolledBack=True: slower than the reference by more than is allowed."""
    PEAK_OVER_BUDGET = "PeakOverBudget"
    """RolledBack=True: measured peak plus reserve is above the capacity."""
    LEDGER_MISMATCH = "LedgerMismatch"
    """RolledBack=True: ledger and allocator disagree."""
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """A phase took longer than it may; the message says which one, and how long that is."""
    VALIDATION_FAILED = "ValidationFailed"
    """RolledBack=True: the validation run itself raised."""
    PROVEN = "Proven"
    """Validated=True: the placement in force passed."""
    PROVEN_AFTER_ROLLBACK = "ProvenAfterRollback"
    """Validated=True: the last good placement passed again."""
    NO_ROLLBACK = "NoRollback"
    """RolledBack=False."""
    SERVING = "Serving"
    """Ready=True."""
    STOPPING = "Stopping"
    """Ready=False: the agent was asked to end."""
    AS_PREDICTED = "AsPredicted"
    """Drifted=False."""
    SECONDS_OFF = "SecondsOff"
    """Drifted=True: requests take other seconds than was promised by more than 10 %."""
    PEAK_OFF = "PeakOff"
    """Drifted=True: requests take other device memory than was promised by more than 10 %."""
    FAILED = "Failed"
    """Ready=False, Validated=False: nothing validates; the message says what would help."""


class DeploymentCondition(StrEnum):
    """Condition types of a DiffusionDeployment; all written by the operator."""

    READY = "Ready"
    """This generation is fully rolled out and every replica is validated."""
    AVAILABLE = "Available"
    """At least one validated pod serves."""
    PROGRESSING = "Progressing"
    PLACEMENT_VALIDATED = "PlacementValidated"
    """Every replica's placement is validated."""
    DEGRADED = "Degraded"
    STALLED = "Stalled"
    """Only present when True."""
    RECONCILING = "Reconciling"
    """Only present when True."""


class DeploymentReason(StrEnum):
    """Reasons of a DiffusionDeployment's conditions."""

    RECONCILING = "Reconciling"
    """Ready=Unknown at the first reconcile; Reconciling=True while a rollout is under way."""
    ROLLED_OUT = "RolledOut"
    """Ready=True, Progressing=False."""
    ROLLING_OUT = "RollingOut"
    """Ready=False, Progressing=True."""
    PAUSED = "Paused"
    SCALED_TO_ZERO = "ScaledToZero"
    POD_AVAILABLE = "PodAvailable"
    """Available=True."""
    NO_POD_AVAILABLE = "NoPodAvailable"
    """Available=False."""
    WAITING_FOR_PODS = "WaitingForPods"
    """No pod exists yet, or pods wait for a node, an image or a volume; the message has the last error."""
    CALIBRATING = "Calibrating"
    """A pod is in one of the phases before validation."""
    VALIDATED = "Validated"
    """PlacementValidated=True."""
    PLACEMENT_INFEASIBLE = "PlacementInfeasible"
    """Stalled=True, Ready=False: no placement fits."""
    PLACEMENT_ROLLED_BACK = "PlacementRolledBack"
    """Degraded=True: pods serve the last good placement."""
    PLACEMENT_FAILED = "PlacementFailed"
    """Degraded=True, Stalled=True: nothing validates."""
    POD_FAILED = "PodFailed"
    """Degraded=True: a container crashed, was killed for memory, or its image cannot be pulled."""
    UNSCHEDULABLE = "Unschedulable"
    CREATE_FAILED = "CreateFailed"
    """The API server refused a child (quota, admission); the message has its answer."""
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    SPEC_INVALID = "SpecInvalid"
    """Stalled=True: the spec cannot be rendered; the message says which field."""
    DEFINITION_OUTDATED = "DefinitionOutdated"
    """Ready=False: the CRD is older than the operator and drops fields of the spec; the message names them."""
    HEALTHY = "Healthy"
    """Degraded=False."""


class OperatorEnv(StrEnum):
    """Environment variables of the operator's own container, set by the chart."""

    AGENT_IMAGE = "STOWPLAN_AGENT_IMAGE"
    """Image of the server container where spec.serving.image is absent."""
    AGENT_IMAGE_PULL_POLICY = "STOWPLAN_AGENT_IMAGE_PULL_POLICY"
    """Its pull policy where spec.serving.imagePullPolicy is absent; empty: Kubernetes' own default."""
    AGENT_POD_TEMPLATE = "STOWPLAN_AGENT_POD_TEMPLATE"
    """Path of a YAML file with a partial pod template for every pod; a user's podTemplate wins over it. Optional."""
    AGENT_ROLE = "STOWPLAN_AGENT_ROLE"
    """Name of the ClusterRole bound to the agents' ServiceAccounts (stowplan-agent)."""
    WATCH_NAMESPACES = "STOWPLAN_WATCH_NAMESPACES"
    """Comma-separated namespaces to serve; empty: all of them."""
    RESYNC_SECONDS = "STOWPLAN_RESYNC_SECONDS"
    """Seconds between two full lists of everything (180)."""
    METRICS_PORT = "STOWPLAN_METRICS_PORT"
    """Port of /metrics on all addresses (9090)."""
    POD_NAME = "STOWPLAN_OPERATOR_POD"
    """Name of the operator's own pod, for Events."""
    LIVENESS_PORT = "STOWPLAN_LIVENESS_PORT"
    """Port of /healthz on all addresses (8080)."""
    LOG_LEVEL = "STOWPLAN_LOG_LEVEL"
    """debug, info, warning or error."""
