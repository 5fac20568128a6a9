"""Work of the engine per trial, counted instead of timed: calls of our functions, and conversions of models.

    python -m benchmarks.flow              the difference of 260 and 60 trials, divided by 200
    python -m benchmarks.flow --rooms      and the rooms of these functions
    python -m benchmarks.flow --conversions    and the callers of conversions
    python -m benchmarks.flow --reply          and the functions that a parameter's value passes on its way to the argv
    python -m benchmarks.flow --functions 60   and the sixty functions that are called most often

`katib run` of an experiment that does nothing runs twice under a profile on every thread, so the figures don't depend
on the machine. A generator expression and a comprehension count as calls, as the interpreter counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.support import ROOT_ENVIRONMENT, experiment

ROOT = Path(__file__).parents[1]
OURS = tuple(str(ROOT / room) + os.sep for room in ("katib", "suggestion_services", "metrics_collector"))
TYPES = str(ROOT / "katib" / "model" / "types") + os.sep
CONVERSIONS = ("convert", "json_decode", "replace", "to_builtins")
# `Model.encode` writes text and reads it: one conversion, counted where it reads.
TRIALS = (60, 260)
FIRST, LAST = "_suggestions", "Processes.launch"
# A reply is decoded by the first; the last one has the program started, by the guard.
VALUE = re.compile(r"0\.\d{5,}")

# A function that runs at least in every second trial belongs to the flow; one called by a timer does not.
OFTEN = 0.5


def profiled(path: str, counts_path: str) -> None:
    """Run the experiment in this process and write the number of calls of each function."""
    counts: Counter[CodeType] = Counter()
    conversions: Counter[tuple[str, CodeType]] = Counter()

    reply = ReplyPath()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            counts[frame.f_code] += 1
            reply.follow(frame, event, None)
        elif event == "return":
            reply.follow(frame, event, argument)
        elif event == "c_call" and (getattr(argument, "__module__", "") or "").startswith("msgspec"):
            conversions[argument.__name__, caller_of(frame)] += 1

    from katib.doors.cli import main

    threading.setprofile(count)
    sys.setprofile(count)
    sys.argv = ["katib", "run", path, "-q"]
    code: Any = 0
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.setprofile(None)
    found: Counter[str] = Counter()
    for function, calls in counts.copy().items():
        if function.co_filename.startswith(OURS):
            found[name_of(function)] += calls
    found.update({f"reply {name_of(function)}": 1 for function in reply.functions})
    for (name, caller), calls in conversions.items():
        if name in CONVERSIONS:
            found[f"conversion {name} in {name_of(caller)}"] += calls
    Path(counts_path).write_text(json.dumps(found))
    # The caller sees the end of the command; threads that are profiled still need no orderly end.
    sys.stdout.flush()
    os._exit(int(code or 0))


class ReplyPath:
    """Functions of ours that take or return the value of a parameter, from an algorithm's reply to the program's start.

    A value is found in texts, numbers, containers and the fields of models and dataclasses, but not in `self`: a
    function of an engine that holds all trials does not count for that.
    """

    def __init__(self) -> None:
        self.functions: set[CodeType] = set()
        self._value = ""
        self._is_over = False

    def follow(self, frame: FrameType, event: str, argument: object) -> None:
        """Look at a call, or at what it returned."""
        code, caller = frame.f_code, frame.f_back
        if self._is_over or not code.co_filename.startswith(OURS):
            return
        if not self._value:
            if event == "return" and code.co_qualname == FIRST:
                self._value = next((text for text in texts_of(argument) if VALUE.fullmatch(text)), "")
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        taken = [frame.f_locals.get(name) for name in names if name not in {"self", "cls"}]
        if any(self._value in text for text in texts_of(taken if event == "call" else argument)):
            self.functions.add(code)
        is_of_pod = caller is not None and f"{os.sep}pods{os.sep}" in caller.f_code.co_filename
        self._is_over = code.co_qualname == LAST and is_of_pod


def texts_of(value: object, depth: int = 7) -> Iterator[str]:
    """Yield the texts and numbers in a value, with those in its containers and fields."""
    if isinstance(value, str | float):
        yield str(value)
    elif isinstance(value, bytes):
        yield value.decode(errors="replace")
    elif isinstance(value, type) or not depth:
        return
    else:
        fields = (*getattr(value, "__struct_fields__", ()), *getattr(value, "__dataclass_fields__", ()))
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
        for part in (*(getattr(value, name, None) for name in fields), *parts):
            yield from texts_of(part, depth - 1)


def name_of(function: CodeType) -> str:
    return f"{function.co_filename}:{function.co_firstlineno} {function.co_qualname}"


def caller_of(frame: FrameType) -> CodeType:
    """Return the caller of a conversion: the first function on the stack outside of the types themselves."""
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename.startswith(TYPES):
        caller = caller.f_back
    return (caller or frame).f_code


def counted(trials: int) -> dict[str, int]:
    """Return the number of calls of each function in a run of this many trials."""
    with tempfile.TemporaryDirectory() as directory:
        path = experiment(Path(directory), ":; echo loss=1", trials=trials, parallel=2)
        counts = Path(directory) / "counts.json"
        environment = {**ROOT_ENVIRONMENT, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "benchmarks.flow", "--profiled", str(path), str(counts)]
        subprocess.run(command, cwd=directory, env=environment, check=True, stdout=subprocess.DEVNULL)
        return json.loads(counts.read_text())  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=0, help="list so many functions, the most called first")
    parser.add_argument("--rooms", action="store_true", help="list calls and different functions of each room")
    parser.add_argument("--conversions", action="store_true", help="list the functions that convert objects")
    parser.add_argument("--reply", action="store_true", help="list the functions that a value of a reply passes")
    parser.add_argument("--profiled", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.profiled:
        profiled(*arguments.profiled)
    few, many = (counted(trials) for trials in TRIALS)
    extent = TRIALS[1] - TRIALS[0]
    reply = {name.removeprefix("reply ") for name in few if name.startswith("reply ")}
    few, many = ({name: n for name, n in found.items() if not name.startswith("reply ")} for found in (few, many))
    each = {name: (calls - few.get(name, 0)) / extent for name, calls in many.items()}
    ours = {name: calls for name, calls in each.items() if not name.startswith("conversion ")}
    conversions = {name: calls for name, calls in each.items() if name.startswith("conversion ")}
    print("for each trial that does nothing, without noise of the machine")
    print(f"calls of our functions   {sum(ours.values()):7.0f}   (target: at most 2,000)")
    print(f"different functions      {sum(calls >= OFTEN for calls in ours.values()):7d}   (target: at most 500)")
    print(f"conversions of models    {sum(conversions.values()):7.1f}   (target: at most 15)")
    files = {name.partition(":")[0] for name in reply}
    print(f"take a reply to the argv {len(reply):7d}   functions in {len(files)} files (target: at most 100 in 45)")
    for name in sorted(reply) if arguments.reply else ():
        print(f"           {name.replace(str(ROOT) + os.sep, '')}")
    if arguments.rooms:
        rooms: defaultdict[str, list[float]] = defaultdict(list)
        for name, calls in ours.items():
            module = Path(name.partition(":")[0]).relative_to(ROOT)
            rooms["/".join(module.parent.parts[:3])].append(calls)
        for room, found in sorted(rooms.items(), key=lambda item: -sum(item[1])):
            print(f"{sum(found):9.1f} {sum(calls >= OFTEN for calls in found):4d}  {room}")
    listed = sorted(ours.items(), key=lambda item: -item[1])[: arguments.functions]
    if arguments.conversions:
        listed = sorted(conversions.items(), key=lambda item: -item[1]) + listed
    for name, calls in listed:
        print(f"{calls:9.1f}  {name.replace(str(ROOT) + os.sep, '').removeprefix('conversion ')}")


if __name__ == "__main__":
    main()
