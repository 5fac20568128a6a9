"""Run by Python at the start of programs that push their metrics; see the package's docstring.

Uses nothing of ours: the program may run in another environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

_MODULE = "kubeflow.katib.api.report_metrics"


class _Finder:
    """Finds one module, as all others do, and has it adapted once it is loaded."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG003 - the signature is Python's
        if name != _MODULE:
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module
            spec.loader.exec_module = partial(_load, load)  # type: ignore[method-assign]  # of this one loader
        return spec


def _load(load: Any, module: ModuleType) -> None:
    load(module)
    adapt(module)


def adapt(module: Any) -> None:
    """Have the function report to the DB manager of its trial, with the token of its trial."""
    address = os.environ["KATIB_DB_MANAGER_ADDRESS"]
    metadata = (("katib-token", os.environ.get("KATIB_DB_MANAGER_TOKEN", "")),)
    connect, make_stub = module.grpc.insecure_channel, module.katib_api_pb2_grpc.DBManagerStub
    check = module.utils.validate_metrics_value

    def stub(channel: Any) -> SimpleNamespace:
        return SimpleNamespace(ReportObservationLog=partial(make_stub(channel).ReportObservationLog, metadata=metadata))

    module.grpc = SimpleNamespace(insecure_channel=lambda _target: connect(address))
    module.katib_api_pb2_grpc = SimpleNamespace(DBManagerStub=stub)
    module.utils = SimpleNamespace(get_current_k8s_namespace=lambda: "default", validate_metrics_value=check)


def _run_the_next_one() -> None:
    """Run the `sitecustomize` that this one hides, such as that of a distribution."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - no import more than needed
    sys.path[:] = [entry for entry in sys.path if entry != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


if __name__ == "sitecustomize":
    if os.environ.get("KATIB_DB_MANAGER_ADDRESS"):
        sys.meta_path.insert(0, _Finder)
    _run_the_next_one()
