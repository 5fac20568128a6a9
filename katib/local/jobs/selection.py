"""Whether labels select a pod of a job, as far as that is known before it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from katib.api.wording import either, shown
from katib.local.findings import Findings
from katib.local.jobs.kind import LabelValues, PodLabels
from katib.templates import has_placeholder

_LONGEST_NUMBER: Final = 10


def check_pod_labels(pods: Sequence[PodLabels], labels: Mapping[str, str], path: str, findings: Findings) -> None:
    """Find that labels select none of the pods of a job.

    Args:
        pods: What its pods will have; nothing is found where that is not known.
        labels: What is to select pods.
        path: Where they stand.
        findings: Takes what is found.
    """
    given = ", ".join(f"{name}: {value}" for name, value in labels.items())
    what = "label" if len(labels) == 1 else "labels"
    if has_placeholder(given):
        cause = f"placeholders are not filled in here, so no pod will have the {what} {shown(given)}"
        findings.error(path, cause, f"write the {what} as all trials have", "primary-pod-labels")
    elif pods and not any(_has(pod, labels) for pod in pods):
        offered = _listed([pod.own for pod in pods])
        remedy = f"choose from what its pods have ({offered})" if offered else "remove it, and all its pods count"
        cause = f"no pod will have the {what} {shown(given)}, so no metrics would be read"
        findings.error(path, cause, f"{remedy}, or put the {what} into the pod template", "primary-pod-labels")


def _has(pod: PodLabels, labels: Mapping[str, str]) -> bool:
    known = {**pod.own, **pod.others}
    may_have_any = any(map(has_placeholder, known))  # of a name that is not known yet
    return may_have_any or all(name in known and _fits(known[name], value) for name, value in labels.items())


def _fits(values: LabelValues, value: str) -> bool:
    if isinstance(values, range):
        return value.isdecimal() and len(value) <= _LONGEST_NUMBER and int(value) in values and str(int(value)) == value
    return values is None or has_placeholder(values) or values == value


def _listed(pods: Sequence[Mapping[str, LabelValues]]) -> str:
    """Return labels with the values that some pods have: `role: master or worker, index: 0 to 3`."""
    parts = []
    for name in dict.fromkeys(name for own in pods for name in own):
        found = [own[name] for own in pods if name in own]
        numbers = [number for values in found if isinstance(values, range) for number in (values[0], values[-1])]
        texts = list(dict.fromkeys(values for values in found if isinstance(values, str)))
        if numbers:
            texts.append(f"{min(numbers)} to {max(numbers)}" if max(numbers) > min(numbers) else f"{numbers[0]}")
        parts.append(f"{name}: {either(texts)}" if texts else name)
    return ", ".join(parts)
