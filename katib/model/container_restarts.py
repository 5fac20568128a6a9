"""Kubelet's decision to restart a container that has ended. Pure.

A container has the pod's restart policy or, from Kubernetes 1.34 on, one of its own, preceded by rules. The first rule
that matches the exit code applies. Both known actions restart the container: `Restart` alone, and
`RestartAllContainers` together with all others of its pod, including ended ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from katib.errors import FieldError
from katib.model.wording import did_you_mean, shown

OWN_FIELDS = ("restartPolicy", "restartPolicyRules")
"""Fields of a container that control its restarts."""

EXIT_CODES = range(256)

_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")


def runs_again(container: Mapping[str, Any], pod_policy: str, exit_code: int) -> bool:
    """Return whether a container that ended with an exit code is restarted.

    Args:
        container: As in the pod's spec; only `OWN_FIELDS` count.
        pod_policy: The `restartPolicy` of the pod.
    """
    policy = container.get("restartPolicy")
    if policy and any(_fits(rule, exit_code) for rule in container.get("restartPolicyRules") or ()):
        return True
    return {"Always": True, "OnFailure": exit_code != 0}.get(policy or pod_policy, False)


def unknown_rules(container: Mapping[str, Any], path: str, *, is_program: bool) -> Iterator[FieldError]:
    """Yield an error for each rule that makes the end of a pod's program undecidable.

    Args:
        container: Any container of the pod; may be malformed.
        is_program: Whether it runs the program. Of other containers only actions matter: they may affect the program.
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
