"""A suggestion service of your own, here a hill climber: small steps around the best trial so far."""

import argparse
import random
from concurrent.futures import ThreadPoolExecutor

import api_pb2 as pb
import api_pb2_grpc
import grpc


class HillClimber(api_pb2_grpc.SuggestionServicer):
    """Keeps nothing between calls: each request carries the whole history, so a restart changes nothing."""

    def ValidateAlgorithmSettings(self, request, context):  # noqa: N802 - the wire's name
        for setting in request.experiment.spec.algorithm.algorithm_settings:
            if setting.name != "step_size":
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"unknown setting {setting.name}; use step_size")
        return pb.ValidateAlgorithmSettingsReply()

    def GetSuggestions(self, request, context):  # noqa: ARG002, N802 - the wire's name
        spec = request.experiment.spec
        settings = {s.name: s.value for s in spec.algorithm.algorithm_settings}
        size, best = float(settings.get("step_size", 0.1)), best_assignments(spec.objective, request.trials)
        reply = pb.GetSuggestionsReply()
        for k in range(request.total_request_number - request.current_request_number, request.total_request_number):
            rng = random.Random(f"{request.experiment.name}/{k}")
            values = {p.name: choose(p, best.get(p.name), size, rng) for p in spec.parameter_specs.parameters}
            reply.parameter_assignments.add(
                assignments=[pb.ParameterAssignment(name=name, value=value) for name, value in values.items()]
            )
        return reply


def best_assignments(objective: pb.ObjectiveSpec, trials: list[pb.Trial]) -> dict[str, str]:
    ended = [t for t in trials if t.status.condition == pb.TrialStatus.SUCCEEDED]
    pick = max if objective.type == pb.MAXIMIZE else min
    best = pick(ended, key=lambda t: float(t.status.observation.metrics[0].value), default=pb.Trial())
    return {a.name: a.value for a in best.spec.parameter_assignments.assignments}


def choose(parameter: pb.ParameterSpec, best: str | None, size: float, rng: random.Random) -> str:
    space = parameter.feasible_space
    if space.list:
        return rng.choice(space.list) if best is None or rng.random() < size else best
    low, high = float(space.min), float(space.max)
    value = rng.uniform(low, high) if best is None else rng.gauss(float(best), size * (high - low))
    value = min(max(value, low), high)
    return str(round(value)) if parameter.parameter_type == pb.INT else str(value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    server = grpc.server(ThreadPoolExecutor())
    api_pb2_grpc.add_SuggestionServicer_to_server(HillClimber(), server)
    server.add_insecure_port(parser.parse_args().address)
    server.start()
    server.wait_for_termination()
