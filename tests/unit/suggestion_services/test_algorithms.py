"""The list of algorithms: readable, cheap, complete, and documented."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from katib.errors import NotFoundError
from katib.model.algorithms import AlgorithmInfo
from katib.wire.rpc._generated import api_pb2 as pb
from suggestion_services.algorithms import ENTRIES, ListedAlgorithm, find_entry
from suggestion_services.base import Algorithm
from suggestion_services.early_stopping import StoppingAlgorithm
from suggestion_services.server import start_server
from tests.support.golden import Golden
from tests.support.searches import algorithm_for, search
from tests.support.suggestion import Service, a_parameter, an_experiment

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "algorithms.md"


def test_names_are_unique_within_their_kind() -> None:
    names = [(entry.info.name, entry.info.early_stopping) for entry in ENTRIES]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.info.name)
def test_every_class_can_be_loaded(entry: ListedAlgorithm) -> None:
    assert issubclass(entry.load(), StoppingAlgorithm if entry.info.early_stopping else Algorithm)


def test_reading_the_list_imports_no_library_behind_an_algorithm() -> None:
    heavy = "{'optuna', 'skopt', 'sklearn', 'scipy', 'numpy', 'grpc'}"
    code = f"import sys, suggestion_services.algorithms; print(sorted({heavy} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("entry", [e for e in ENTRIES if not e.info.early_stopping], ids=lambda e: e.info.name)
def test_what_an_algorithm_refuses_is_what_its_rules_refuse(entry: ListedAlgorithm) -> None:
    algorithm, rules = entry.load(), entry.load_rules()
    if entry.info.numeric_parameters:
        return  # checked of any experiment

    assert (algorithm.check.__func__, algorithm.check_before_start.__func__) == (
        rules.check.__func__,
        rules.check_before_start.__func__,
    )


def test_the_rules_of_common_algorithms_import_no_library_behind_one() -> None:
    heavy = "{'optuna', 'skopt', 'sklearn', 'scipy', 'numpy', 'grpc'}"
    names = ["random", "grid", "tpe", "motpe", "bayesianoptimization", "gp", "sobol", "hyperband", "asha", "auto"]
    code = (
        "import sys; from suggestion_services.algorithms import find_entry\n"
        f"for name in {names}: find_entry(name).load_rules()\nprint(sorted({heavy} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_name_is_looked_up_within_its_kind() -> None:
    assert find_entry("medianstop", early_stopping=True).info.early_stopping
    with pytest.raises(NotFoundError):
        find_entry("medianstop")
    with pytest.raises(NotFoundError):
        find_entry("tpe", early_stopping=True)


def test_an_unknown_name_without_a_near_one_lists_all(golden: Golden) -> None:
    with golden.raises(NotFoundError):
        find_entry("zzz")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e.info.name)
def test_every_algorithm_and_setting_is_on_the_page(entry: ListedAlgorithm) -> None:
    suggestion, _, early_stopping = PAGE.read_text().partition("\n## Early stopping\n")
    page = early_stopping if entry.info.early_stopping else suggestion
    _, _, rest = page.partition(f"\n### {entry.info.name}\n")
    section = rest.partition("\n### ")[0].partition("\n## ")[0]

    assert entry.info.summary in section
    for setting in entry.info.settings or ():
        assert f"| `{setting.name}` | {setting.type} | {setting.default} |" in section
        assert setting.description in section


def blocks_of_code() -> list[str]:
    return [block.partition("```")[0] for block in PAGE.read_text().split("```python\n")[1:]]


def test_the_example_on_the_page_is_one_class_and_one_line_that_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, line, *_ = blocks_of_code()
    (tmp_path / "a_halton_of_the_docs.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {"ListedAlgorithm": ListedAlgorithm, "AlgorithmInfo": AlgorithmInfo}
    entry = eval(line.strip().rstrip(",").replace("suggestion_services.halton.halton", "a_halton_of_the_docs"), names)
    server, port = start_server((entry,), "127.0.0.1:0")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        points = Service(channel).ask(an_experiment("halton"), count=3)
    server.stop(None).wait()

    assert points[0] == {"x": "0.5", "y": "0.3333333333333333"}
    assert len(points) == 3


def test_classes_that_are_asked_for_at_once_are_imported_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tmp_path / "steps"
    write = f"with open({str(steps)!r}, 'a') as file: file.write(step)"
    body = f"import time\nfor step in 'ab':\n    {write}\n    time.sleep(0.2)"
    for module in ("imported_slowly", "imported_slowly_too"):
        (tmp_path / f"{module}.py").write_text(f"{body}\nclass Search: ...")
    monkeypatch.syspath_prepend(tmp_path)
    entries = [replace(ENTRIES[0], path=f"{path.stem}:Search") for path in sorted(tmp_path.glob("*.py"))]

    with ThreadPoolExecutor(len(entries)) as threads:
        found = list(threads.map(lambda entry: entry.load().__module__, entries))

    assert found == ["imported_slowly", "imported_slowly_too"]
    assert steps.read_text() == "abab"


@pytest.mark.parametrize(
    "name",
    ["random", "grid", "tpe", "multivariate-tpe", "motpe", "bayesianoptimization", "gp", "sobol", "nsga2", "auto"],
)
def test_no_point_of_a_small_space_is_repeated_while_others_are_left(name: str) -> None:
    parameters = [
        a_parameter("x", pb.CATEGORICAL, list=["p", "q", "r", "s"]),
        a_parameter("y", pb.INT, min="1", max="3"),
    ]
    algorithm = algorithm_for(name, parameters, settings={} if name == "grid" else {"random_state": 2})

    trials = search(algorithm, lambda point: len(point["x"]) * float(point["y"]), budget=12)

    assert len({tuple(trial.assignments.items()) for trial in trials}) == 12
