"""The nineteen calls of Optuna's storage protocol, each mapped to a call of `katib.service.tuning.chosen_trials`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from katib.doors.optuna_storage import translation as words
from katib.doors.optuna_storage.messages import CALLS, SERVICE
from katib.errors import InternalError, KatibError, code_of, one_line
from katib.service.tuning.chosen_trials import ChosenTrials

if TYPE_CHECKING:
    import grpc

ALGORITHM = "optuna"
"""Shown as the algorithm of a study: the sampler runs in the client, and the protocol does not name it."""


class StorageService:
    """Implements the protocol. Each method of a call takes its request and returns the fields of the reply."""

    def __init__(self, trials: ChosenTrials) -> None:
        self._trials = trials
        self._methods = {call: (getattr(self, _method(call)), reply) for call, (_, reply) in CALLS.items()}

    def answer(self, call: str, request: Any) -> bytes:
        """Return the serialized reply to a request of a call.

        Raises:
            KatibError: The call is refused, with the code of its class.
        """
        method, reply = self._methods[call]
        written: bytes = reply(**method(request)).SerializeToString()
        return written

    def _create_new_study(self, request: Any) -> dict[str, Any]:
        objective = words.objective_of(request.directions)
        return {"study_id": self._trials.create(request.study_name, objective, ALGORITHM)}

    def _delete_study(self, request: Any) -> dict[str, Any]:
        self._trials.delete(request.study_id)
        return {}

    def _set_study_user_attribute(self, request: Any) -> dict[str, Any]:
        self._trials.set_attribute(request.study_id, words.USER, request.key, request.value)
        return {}

    def _set_study_system_attribute(self, request: Any) -> dict[str, Any]:
        self._trials.set_attribute(request.study_id, words.SYSTEM, request.key, request.value)
        return {}

    def _get_study_id_from_name(self, request: Any) -> dict[str, Any]:
        return {"study_id": self._trials.find(request.study_name)}

    def _get_study_name_from_id(self, request: Any) -> dict[str, Any]:
        return {"study_name": self._trials.experiment(request.study_id).title}

    def _get_study_directions(self, request: Any) -> dict[str, Any]:
        return {"directions": words.directions_of(self._trials.experiment(request.study_id).objective)}

    def _get_study_user_attributes(self, request: Any) -> dict[str, Any]:
        return {"user_attributes": self._trials.experiment(request.study_id).attributes.get(words.USER, {})}

    def _get_study_system_attributes(self, request: Any) -> dict[str, Any]:
        return {"system_attributes": self._trials.experiment(request.study_id).attributes.get(words.SYSTEM, {})}

    def _get_all_studies(self, _request: Any) -> dict[str, Any]:
        return {"studies": list(map(words.study_of, self._trials.experiments()))}

    def _create_new_trial(self, request: Any) -> dict[str, Any]:
        study = request.study_id
        if request.template_trial_is_none:
            number = self._trials.create_trial(study)
        else:
            number = self._trials.create_trial(study, *words.trial_of(request.template_trial))
        return {"trial_id": words.trial_id(study, number)}

    def _set_trial_parameter(self, request: Any) -> dict[str, Any]:
        study, trial = words.numbers_of(request.trial_id)
        chosen = words.parameter_of(request.param_name, request.param_value_internal, request.distribution)
        self._trials.choose(study, trial, *chosen)
        return {}

    def _get_trial_id_from_study_id_trial_number(self, request: Any) -> dict[str, Any]:
        trial = self._trials.trial(request.study_id, request.trial_number)
        return {"trial_id": words.trial_id(request.study_id, trial.number)}

    def _set_trial_state_values(self, request: Any) -> dict[str, Any]:
        study, trial = words.numbers_of(request.trial_id)
        state = words.state_of(request.state)
        return {"trial_updated": self._trials.turn(study, trial, state, request.values)}

    def _set_trial_intermediate_value(self, request: Any) -> dict[str, Any]:
        self._trials.report(*words.numbers_of(request.trial_id), request.step, request.intermediate_value)
        return {}

    def _set_trial_user_attribute(self, request: Any) -> dict[str, Any]:
        place = words.numbers_of(request.trial_id)
        self._trials.set_trial_attribute(*place, words.USER, request.key, request.value)
        return {}

    def _set_trial_system_attribute(self, request: Any) -> dict[str, Any]:
        place = words.numbers_of(request.trial_id)
        self._trials.set_trial_attribute(*place, words.SYSTEM, request.key, request.value)
        return {}

    def _get_trial(self, request: Any) -> dict[str, Any]:
        study, number = words.numbers_of(request.trial_id)
        return {"trial": self._trials.read(study, number, words.message_of)}

    def _get_trials(self, request: Any) -> dict[str, Any]:
        study = request.study_id
        wanted = [words.numbers_of(id_)[1] for id_ in request.included_trial_ids]
        last = request.trial_id_greater_than
        first = words.numbers_of(last)[1] + 1 if last >= 0 else 0
        return {"trials": self._trials.read_all(study, wanted, first, words.message_of)}


def handlers(service: StorageService) -> grpc.GenericRpcHandler:
    import grpc

    made = {
        call: grpc.unary_unary_rpc_method_handler(_answering(service, call), request.FromString)
        for call, (request, _) in CALLS.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, made)


def _answering(service: StorageService, call: str) -> Callable[[Any, grpc.ServicerContext], bytes]:
    import grpc

    def answer(request: Any, context: grpc.ServicerContext) -> bytes:
        try:
            return service.answer(call, request)
        except KatibError as error:
            context.abort(grpc.StatusCode[code_of(error).grpc_code], one_line(error))
            raise InternalError("abort always raises") from error

    return answer


def _method(call: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in call)
