"""Errors are a promise to users: each origin is explained, and none is explained that does not exist."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from katib.errors import FieldError, InvalidError
from katib.model.failure_text import LAST_OUTPUT, failure_cause, last_line, with_last_output
from tests.support.golden import Golden

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "errors.md"
DOCUMENTED_ROOMS = ("doors/ui", "figures", "model", "places/machine", "sdk", "service")
DOCUMENTED_FILES = (
    "katib/engine/algorithm_services/refusals.py",
    "katib/doors/cli/editing.py",
    "katib/doors/cli/plot.py",
    "katib/doors/cli/selecting.py",
    "katib/places/cluster/template_warnings.py",
    "katib/places/cluster/webhooks/experiments.py",
    "katib/engine/controllers/trial/jobs.py",
    "katib/integrations/hydra.py",
    "katib/integrations/ray.py",
    "katib/wire/serving/status_server.py",
    "katib/wire/rpc/trainer_status.py",
    "katib/sklearn.py",
    "suggestion_services/auto/auto.py",
    "suggestion_services/enas/enas.py",
    "suggestion_services/grid/grid.py",
    "suggestion_services/base/rules.py",
)
RAISERS = {"_Fault", "FieldError", "SpawnError", "error", "invalid", "refuse", "require", "spelled"}

ORIGIN = re.compile(r"[a-z]+(-[a-z]+)*")


def origins_in(path: Path) -> set[str]:
    """Return the origin that is written out in every call that makes an error: the last argument in kebab case."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = set()
    for call in calls:
        if (call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")) in RAISERS:
            texts = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            found.update([text for text in texts if ORIGIN.fullmatch(text)][-1:])
    return found


def raised() -> set[str]:
    files = [path for room in DOCUMENTED_ROOMS for path in (ROOT / "katib" / room).rglob("*.py")]
    files += [ROOT / file for file in DOCUMENTED_FILES]
    return set().union(*map(origins_in, files))


def documented() -> list[str]:
    return re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)


def test_every_origin_is_explained_once_and_every_explanation_is_of_an_origin() -> None:
    assert raised() ^ set(documented()) == set()

    assert [origin for origin, count in Counter(documented()).items() if count > 1] == []


def test_every_rule_of_katib_is_explained() -> None:
    """V37 is about the inside of a Job; what runs Jobs explains it."""
    rules = {int(number) for number in re.findall(r"\bV(\d+)\b", PAGE.read_text())}

    assert set(range(1, 59)) - rules == {37}


def test_whatever_it_quotes_an_error_is_one_printable_line() -> None:
    error = FieldError("spec.x", 'found "a\nb\x1b[31m\u2028ü🎯"', "fix it", "some-rule")

    assert str(error) == 'spec.x: found "a\\nb\\x1b[31m\\u2028ü🎯"; fix it'

    assert str(InvalidError([FieldError("a", "x", "y", "z"), FieldError("b", "x", "y", "z")])) == "a: x; y\nb: x; y"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        pytest.param(b"", "", id="nothing"),
        pytest.param(b"one\ntwo\n", "two", id="the last of several"),
        pytest.param(b"one\ntwo", "two", id="without a line end"),
        pytest.param(b"boom\n\n  \n", "boom", id="blank lines after it"),
        pytest.param(b" 10%\r 50%\r100%\r", "100%", id="a progress bar"),
        pytest.param(b"\x1b[31mError:\x1b[0m boom\n", "Error: boom", id="colours"),
        pytest.param(b"lost \x00 word\n", "lost   word", id="control characters"),
        pytest.param(b"boom\n\x8f\x02\xff\xe9OK\x9c\x00\n", "", id="bytes"),
        pytest.param(b"\x8f\x02\xff\xe9\x9c\x00\x00\x01\nOK\n", "", id="letters among bytes"),
        pytest.param(b"\x8f\x02\xff\xe9\x9c\x00\nValueError: boom\n", "ValueError: boom", id="text after bytes"),
        pytest.param("内存不足\n".encode(), "内存不足", id="another script"),
        pytest.param(b"\xff boom\n", "\ufffd boom", id="not UTF-8"),
        pytest.param(b"x" * 1000, "x" * 300, id="too long"),
        pytest.param(
            b"\x1b]0;a title\x07bad \x1b[2J\x1b(Bthing\x1bP1;q\x1b\\\x1bc\n", "bad thing", id="for the terminal"
        ),
        pytest.param(b"\x1b]8;;http://host\x1b\\a link\x1b]8;;\x1b\\\n", "a link", id="a link"),
        pytest.param(b"\x1b]a title without an end\n", "a title without an end", id="without an end"),
        pytest.param(b"ValueError: boom\nmake: *** [Makefile:4: train] Error 1\n", "ValueError: boom", id="make"),
        pytest.param(
            b'CUDA out of memory\ntime=2026-08-01T12:00:00Z level=info msg="sub-process exited" argo=true error="x"\n'
            b"Error: exit status 1\n",
            "CUDA out of memory",
            id="argo",
        ),
        pytest.param(
            b"make: *** [Makefile:4: train] Error 1\n", "make: *** [Makefile:4: train] Error 1", id="make alone"
        ),
        pytest.param(
            b"docker: no daemon\n\nRun 'docker run --help' for more information\n", "docker: no daemon", id="a hint"
        ),
        pytest.param(b"boom\nsrun: error: n1: task 0: Exited with exit code 1\n", "boom", id="srun"),
    ],
)
def test_the_last_line_of_an_output_is_the_last_with_text(output: bytes, line: str) -> None:
    assert last_line(output) == line


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            'container "main" of pod x-1 exited with 1; the back-off limit of 0 is reached; last output: KeyError: 3',
            id="a job of this machine",
        ),
        pytest.param(
            "Container main in pod x-1 ended with exit code 2; last output: usage: train.py", id="a pod of a cluster"
        ),
        pytest.param(
            'container "main" of pod x-1 exited with 1; the back-off limit of 0 is reached', id="nothing printed"
        ),
        pytest.param(
            'container "main" of pod x-1 was killed by SIGKILL; the back-off limit of 0 is reached; last output: x 7',
            id="a signal",
        ),
        pytest.param(
            'container "main" of pod x-1: command "trian" not found on this machine; install it', id="no such command"
        ),
        pytest.param(
            'container "main" of pod x-1 exited with 1; last output: a; last output: b',
            id="a program that prints our words",
        ),
        pytest.param("too many failures", id="words of a job of any kind"),
    ],
)
def test_what_explains_a_failure_comes_first(text: str, golden: Golden) -> None:
    golden(failure_cause(text))


def test_the_last_line_is_announced_in_the_words_of_a_pods_collector() -> None:
    assert with_last_output("ended", "boom") == f"ended; {LAST_OUTPUT}boom"
