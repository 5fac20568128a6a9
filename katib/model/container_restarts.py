"""Whether Kubernetes starts a container again when it has ended, as a kubelet decides it. Pure.

A container has the pod's policy, or from Kubernetes 1.34 on one of its own with rules before it. Of these the first
that fits the exit code counts, and both actions that are known start the container again: `Restart` it alone, and
`RestartAllContainers` with all others of its pod, those that have ended included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from katib.errors import FieldError
from katib.model.wording import did_you_mean, shown

OWN_FIELDS = ("restartPolicy", "restartPolicyRules")
"""Where a container says it."""

EXIT_CODES = range(256)

_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")


def runs_again(container: Mapping[str, Any], pod_policy: str, exit_code: int) -> bool:
    """Return whether a container that ended with an exit code is started again.

    Args:
        container: As in the pod's spec; of it only `OWN_FIELDS` count.
        pod_policy: The `restartPolicy` of the pod.
        exit_code: Of the container.
    """
    policy = container.get("restartPolicy")
    if policy and any(_fits(rule, exit_code) for rule in container.get("restartPolicyRules") or ()):
        return True
    return {"Always": True, "OnFailure": exit_code != 0}.get(policy or pod_policy, False)


def unknown_rules(container: Mapping[str, Any], path: str, *, is_program: bool) -> Iterator[FieldError]:
    """Yield why it cannot be known when the program of a pod has ended.

    Args:
        container: Any of the pod; may be malformed.
        path: Where it stands.
        is_program: Whether it is the program's own; of others matter just actions, which may concern the program.
    """
    rules = container.get("restartPolicyRules")
    for i, rule in enumerate(rules if isinstance(rules, list) else ()):
        if not isinstance(rule, Mapping):
            continue
        codes = rule.get("exitCodes")
        found: list[tuple[str, object, Sequence[str]]] = [("action", rule.get("action"), _ACTIONS)]
        if is_program and isinstance(codes, Mapping):
            found.append(("exitCodes.operator", codes.get("operator"), _OPERATORS))
        elif is_program:
            found += [(name, rule[name], ("exitCodes",)) for name in rule if name != "action"]
        for field, value, known in found:
            if value not in known:
                cause = f"{shown(value)} is not known here, so the end of the program could not be recognized"
                remedy = did_you_mean(value if isinstance(value, str) else "", known)
                yield FieldError(f"{path}.restartPolicyRules[{i}].{field}", cause, remedy, "restart-rule-unknown")


def _fits(rule: Mapping[str, Any], exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    is_listed = exit_code in (codes.get("values") or ())
    return {"In": is_listed, "NotIn": not is_listed}.get(codes.get("operator", ""), False)
