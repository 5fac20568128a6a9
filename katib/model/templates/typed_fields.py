"""Fields of job objects that hold numbers or booleans.

In an inline template every placeholder is in a string. If that string is the whole value of one of these fields, the
rendered value gets the field's type, because API servers refuse `parallelism: "4"`. Everywhere else (commands,
arguments, environment values, labels, unknown fields) a value stays text.

The names cover `batch/v1` Job completely (a test compares them with its schema) and the usual fields of the training
kinds and of JobSet.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto


class FieldType(Enum):
    """Type of a field."""

    INTEGER = auto()
    BOOLEAN = auto()
    INTEGER_OR_TEXT = auto()


_INTEGERS = """
    activeDeadlineSeconds backoffLimit backoffLimitPerIndex completions maxFailedIndexes parallelism
    ttlSecondsAfterFinished minCount succeededCount
    containerPort hostPort defaultMode expirationSeconds
    failureThreshold initialDelaySeconds periodSeconds seconds successThreshold timeoutSeconds
    terminationGracePeriodSeconds deletionGracePeriodSeconds tolerationSeconds
    fsGroup runAsGroup runAsUser supplementalGroups
    maxSkew minDomains weight lun partition defaultUser maxExpirationSeconds

    replicas minReplicas maxReplicas maxRestarts minAvailable scheduleTimeoutSeconds slotsPerWorker
    nProcPerNode numNodes numProcPerNode rdzvPort restartLimit
"""

_BOOLEANS = """
    manualSelector suspend
    allowPrivilegeEscalation automountServiceAccountToken blockOwnerDeletion chapAuthDiscovery chapAuthSession
    controller enableServiceLinks hostIPC hostNetwork hostPID hostProcess hostUsers optional privileged readOnly
    readOnlyRootFilesystem runAsNonRoot setHostnameAsFQDN shareProcessNamespace sslEnabled stdin stdinOnce tty

    enableDynamicWorker runLauncherAsWorker standalone
"""

_INTEGERS_OR_TEXT = "mode port priority"

FIELD_TYPES = {
    **dict.fromkeys(_INTEGERS.split(), FieldType.INTEGER),
    **dict.fromkeys(_BOOLEANS.split(), FieldType.BOOLEAN),
    **dict.fromkeys(_INTEGERS_OR_TEXT.split(), FieldType.INTEGER_OR_TEXT),
}

_TEXT_MAPS = """
    annotations data labels limits matchLabels nodeSelector options overhead requests stringData userAnnotations
    volumeAttributes
"""

TEXT_MAPS = frozenset(_TEXT_MAPS.split())
"""Maps whose keys are the user's own words and whose values are text."""


def field_type(keys: Sequence[str]) -> FieldType | None:
    """Return the type of a field, None for text.

    Args:
        keys: The keys that lead to the value, outermost first; items of a list have the key of their list.
    """
    if len(keys) > 1 and keys[-2] in TEXT_MAPS:
        return None
    if keys[-2:] == ("onExitCodes", "values"):
        return FieldType.INTEGER
    return FIELD_TYPES.get(keys[-1]) if keys else None
