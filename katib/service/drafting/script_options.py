"""Facts about a script from its text: its declared options, with values to search, and its printed metrics.

A guess for the user to confirm: declarations of argparse and click are read from the source, or the output of `--help`
is read if there is no source. Nothing is executed here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from katib.model.files.directories import SHELL_SUFFIXES

_SHELL_LINE = re.compile(r"#!.*\b(?:ba|da|k|z)?sh\b")
_DECLARATIONS = ("add_argument", "option")
_ACTIONS: Final = {"store_true": False, "store_false": True}
FLAG: Final = "flag"
"""Values of an option without a value, which is present or absent."""
_NOT_TUNED = re.compile(
    r"seed|help|version|device|gpu|worker|thread|log|dir|path|file|data|output|port|verbose|completion"
)
_SWITCHES = re.compile(
    r"quiet|debug|resume|cpu|cuda|save|dry|overwrite|force|wandb|profil|eval|test|download|plot|progress"
)
"""Flags that control side effects of a program, in addition to those above."""
_IN_HELP = re.compile(r"[*\s]*(?:-\w(?:[ =][\w.]+)?,\s+)?(--[A-Za-z][\w-]*)(.*)")
_BOX = "│|┃║ \t"
_HELP_CHOICES = re.compile(r"\{([^{}]*,[^{}]*)\}|\[((?!default)[^\[\]|]+(?:\|[^\[\]|]+)+)\]")
_HELP_DEFAULT = re.compile(r"[\[(]default: ?([^\])]*)[\])]")
_NO_VALUE = re.compile(r"\s*$|\s{2,}(?=\S)(?![A-Z_]{3,}\b|[<\[{])")
_OPPOSITE = re.compile(r"(?:\s|/|, )*(--no-[\w-]+)")
_LESS_IS_BETTER = re.compile(r"loss|err|mse|rmse|mae|perplexity|time|latency|cost|deviation")
_FORWARDED = re.compile(r"\$[@*]|\$\{[@*]|\bgetopts?\b|^\s*shift\b", re.MULTILINE)
_IS_METRIC = re.compile(r"loss|acc|score|f1|auc|err|mse|mae|r2|precision|recall|bleu|reward|perplexity|map|iou")
_LIKELY = re.compile(r"val|valid|test|eval")
_NOT_A_METRIC = re.compile(
    r"^(epoch|step|iter|iteration|batch|lr|seed|trial|n|num|size|time|elapsed|seconds|eta|gpu|port|version)s?$"
    r"|learning.?rate|weight.?decay|momentum|dropout|batch.?size|^(num|n)[_-]|^lr[_-]|[_-](lr|size|count)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ScriptOption:
    """An option of a script that may be tuned.

    Attributes:
        flag: As written on the command line, `--lr`.
        values: Values for `-p NAME=VALUES`: a range around its default, or its choices.
    """

    flag: str
    values: str

    @property
    def name(self) -> str:
        return self.flag.lstrip("-")

    def __str__(self) -> str:
        return f"{self.name}={self.values}"


def options_of_source(text: str) -> list[ScriptOption]:
    """Return the options that a Python script declares by argparse or click; empty if it cannot be parsed."""
    try:
        tree = ast.parse(text)
    except (ValueError, SyntaxError, RecursionError):
        return []
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [found for call in calls if (found := _declared(call)) is not None]


def defaults_of_source(text: str) -> dict[str, str]:
    """Return the default of each option that a Python script declares by argparse or click, by flag, as text.

    Those of flags are `True` and `False`. Empty if the script cannot be parsed, or sets defaults elsewhere.
    """
    try:
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    except (ValueError, SyntaxError, RecursionError):
        return {}
    found: dict[str, str] = {}
    for call in calls:
        name = getattr(call.func, "attr", getattr(call.func, "id", ""))
        if name == "set_defaults":
            return {}
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        default, action = _literal(keywords.get("default")), _literal(keywords.get("action"))
        if default is None and action in _ACTIONS:
            default = _ACTIONS[action]
        elif default is None and _literal(keywords.get("is_flag")) is True:
            default = False
        if name in _DECLARATIONS and isinstance(default, str | int | float):
            flags = (_literal(argument) for argument in call.args)
            found |= {flag.partition("/")[0]: str(default) for flag in flags if isinstance(flag, str)}
    return found


def options_of_help(text: str) -> list[ScriptOption]:
    """Return the options that `--help` prints with choices or a numeric default, and flags, in a box or without."""
    entries: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        bare = line.strip(_BOX)
        if match := _IN_HELP.match(bare):
            entries.append((match[1], [match[2]]))
        elif entries and bare:
            entries[-1][1].append(bare)
    found = {flag: _printed(flag, texts[0], " ".join(texts)) for flag, texts in entries if not _NOT_TUNED.search(flag)}
    return [option for option in found.values() if option is not None]


def _printed(flag: str, line: str, text: str) -> ScriptOption | None:
    if choices := _HELP_CHOICES.search(text):
        values = [value.strip() for value in re.split(r"[,|]", choices[1] or choices[2])]
        return ScriptOption(flag, ",".join(values))
    if opposite := _OPPOSITE.match(line):
        return None if _SWITCHES.search(flag) else ScriptOption(flag, f"{flag},{opposite[1]}")
    if default := _HELP_DEFAULT.search(text):
        value = default[1].strip()
        return option_around(flag, f"{value}.0" if "FLOAT" in text and value.isdecimal() else value)
    return ScriptOption(flag, FLAG) if _NO_VALUE.match(line) and not _SWITCHES.search(flag) else None


def option_around(flag: str, value: str) -> ScriptOption | None:
    """Return an option whose value on a command line is a number, with values around it; None for other values."""
    number = _literal(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or _NOT_TUNED.search(flag):
        return None
    return ScriptOption(flag, _around(number))


def is_shell_script(name: str, text: str) -> bool:
    """Return whether a file is a script for a shell: by its first line, else by its name."""
    return bool(_SHELL_LINE.match(text)) or (PurePath(name).suffix in SHELL_SUFFIXES and not text.startswith("#!"))


def shell_command(words: Sequence[str], place: int, text: str, names: Iterable[str]) -> list[str]:
    """Return the command of a shell script with `{lr}` in the place from which it reads `lr`: `$LR`, `$1` or an option.

    Parameters that the script does not read are not added.
    """
    line, variables, wanted = list(words), [], list(names)
    numbers = {name: _position(name, text, is_only=len(wanted) == 1) for name in wanted}
    for name in sorted(wanted, key=lambda name: numbers[name]):
        variable = next((word for word in (name.upper(), name) if _is_read(word, text)), "")
        number, value = numbers[name], f"{{{name}}}"
        if variable:
            variables.append(f"{variable}={value}")
        elif 0 < number <= len(line) - place:
            line[place + number : place + number + 1] = [value]
        elif _FORWARDED.search(text):
            line += [f"--{name}", value]
    return [*variables, *line]


def make_words(text: str, names: Iterable[str]) -> list[str]:
    """Return the words that pass values to `make`, `LR={lr}`: variables as its file writes them."""
    return [f"{name.upper() if re.search(rf'[({{]{name.upper()}[)}}]', text) else name}={{{name}}}" for name in names]


def _is_read(variable: str, text: str) -> bool:
    """Return whether a shell script reads a variable from outside: it is read, and set only from itself."""
    if not variable.isidentifier():
        return False
    is_set = re.search(rf"^\s*(?:export\s+|local\s+)?{variable}=(?!.*\$\{{?{variable}\b)", text, re.MULTILINE)
    return is_set is None and re.search(rf"\$\{{?{variable}\b", text) is not None


def _position(name: str, text: str, *, is_only: bool) -> int:
    """Return the position of the argument that a shell script reads for a parameter, as in `lr=$1`; 0 if unknown."""
    found = re.search(rf"(?<!\w){re.escape(name)}[= ][\"']?\$\{{?(\d)\b", text, re.IGNORECASE)
    return int(found[1]) if found else 1 if is_only and re.search(r"\$\{?1\b", text) else 0


def metrics_of_output(text: str, parameters: Iterable[str] = ()) -> list[str]:
    """Return the names that a program prints as name=value or name: value, the likeliest objective first."""
    from metrics_collector.parsers import TextParser  # imported late: a compiled library that most commands do not need
    from metrics_collector.parsers.lines import printed_metrics, without_control_sequences

    plain = without_control_sequences(text.encode(errors="replace")).decode(errors="replace")
    given = {name.replace("-", "_").lower() for name in parameters}
    printed = dict.fromkeys(name for line in plain.splitlines() for name, _ in printed_metrics(line))
    parser = TextParser(printed)
    read = {reading.name for reading in (*parser.feed(plain.encode()), *parser.finish())}
    names = [name for name in printed if name in read and not _NOT_A_METRIC.search(name)]
    names = [name for name in names if name.replace("-", "_").lower() not in given]
    return sorted(names, key=lambda name: (not _LIKELY.search(name.lower()), not _IS_METRIC.search(name.lower())))


def direction_of(metric: str) -> str:
    """Return the probable direction of a metric, `minimize` or `maximize`."""
    return "minimize" if _LESS_IS_BETTER.search(metric.lower()) else "maximize"


def _declared(call: ast.Call) -> ScriptOption | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in _DECLARATIONS:
        return None
    flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    flag, _, opposite = next((flag for flag in flags if flag.startswith("--")), "").partition("/")
    if not flag or _NOT_TUNED.search(flag):
        return None
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    values = _values(keywords) or _values_of_flag(flag, opposite, keywords)
    return ScriptOption(flag, values) if values else None


def _values_of_flag(flag: str, opposite: str, keywords: dict[str | None, ast.expr]) -> str:
    action = keywords.get("action")
    if _SWITCHES.search(flag):
        return ""
    if opposite or (action is not None and "BooleanOptionalAction" in ast.dump(action)):
        return f"{flag},{opposite or '--no-' + flag[2:]}"
    is_flag = _literal(action) in ("store_true", "store_false") or _literal(keywords.get("is_flag")) is True
    return FLAG if is_flag else ""


def _values(keywords: dict[str | None, ast.expr]) -> str:
    choices = _literal(keywords.get("choices"))
    if choices is None and isinstance(kind := keywords.get("type"), ast.Call):  # click.Choice([...])
        choices = next(iter(filter(None, map(_literal, kind.args))), None)
    if isinstance(choices, list | tuple) and len(choices) > 1:
        return ",".join(map(str, choices))
    default, kind_name = _literal(keywords.get("default")), getattr(keywords.get("type"), "id", "")
    if isinstance(default, bool) or "action" in keywords:
        return ""
    if kind_name == "int" or (not kind_name and isinstance(default, int)):
        return _around(default) if isinstance(default, int) else "1..10"
    if kind_name == "float" or (not kind_name and isinstance(default, float)):
        return _around(float(default)) if isinstance(default, int | float) else "0.0..1.0"
    return ""


def _around(default: float) -> str:
    if isinstance(default, int):
        return f"{max(1, default // 4)}..{default * 4}" if default > 0 else "1..10"
    if default <= 0:
        return "0.0..1.0"
    return f"{default / 10:g}..{default * 10:g}:log" if default < 1 else f"{default / 4:g}..{default * 4:g}:double"


def _literal(node: ast.expr | str | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError, SyntaxError, RecursionError):
        return None
