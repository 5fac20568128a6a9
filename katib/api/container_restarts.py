"""Whether Kubernetes starts a container again when it has ended, as a kubelet decides it. Pure.

A container has the pod's policy, or from Kubernetes 1.34 on one of its own with rules before it. Of these the first that
fits the exit code counts, and both actions that are known start the container again: `Restart` it alone, and
`RestartAllContainers` with all others of its pod, those that have ended included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from katib.api.wording import did_you_mean
from katib.errors import FieldError

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
    """Yield why it cannot be told when the program of a pod runs again.

    Args:
        container: Any of the pod.
        path: Where it stands.
        is_program: Whether it is the program's own; of others matter just actions that may concern the program.
    """
    for i, rule in enumerate(container.get("restartPolicyRules") or ()):
        place = f"{path}.restartPolicyRules[{i}]"
        if rule.get("action") not in _ACTIONS:
            cause = f"{rule.get('action')!r} is not known here, so it cannot be told when the program has ended"
            remedy = did_you_mean(str(rule.get("action") or ""), _ACTIONS)
            yield FieldError(f"{place}.action", cause, remedy, "restart-rule-unknown")
        if not is_program:
            continue
        codes = rule.get("exitCodes") or {}
        if others := sorted(rule.keys() - {"action", "exitCodes"}):
            cause = "this condition is not known here, so it cannot be told when the program has ended"
            yield FieldError(f"{place}.{others[0]}", cause, "use exitCodes", "restart-rule-unknown")
        elif codes.get("operator") not in _OPERATORS:
            cause = f"{codes.get('operator')!r} is not known here, so it cannot be told when the program has ended"
            remedy = did_you_mean(str(codes.get("operator") or ""), _OPERATORS)
            yield FieldError(f"{place}.exitCodes.operator", cause, remedy, "restart-rule-unknown")


def _fits(rule: Mapping[str, Any], exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    is_listed = exit_code in (codes.get("values") or ())
    return {"In": is_listed, "NotIn": not is_listed}.get(codes.get("operator", ""), False)
