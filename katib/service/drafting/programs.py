"""The program to tune: the file of a job, a batch script of Slurm, or any other command.

Its parameters are guessed from its source, its help and its configuration files. Nothing is executed here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from katib.errors import InvalidError
from katib.model.space.build import build_parameter
from katib.model.space.where import build_constraints
from katib.model.types import ParameterSpec
from katib.service.drafting.batch_scripts import Batch, batch_notes, batch_of, text_of
from katib.service.drafting.config_files import defaults_of_config, values_of_config
from katib.service.drafting.experiments import (
    CommandTemplate,
    Json,
    Metrics,
    command_template,
    executed_words,
    has_no_value,
    words_of_line,
)
from katib.service.drafting.job_files import defaults_of_job, job_file_of, job_template, options_of_job, read_job
from katib.service.drafting.script_options import (
    ScriptOption,
    defaults_of_source,
    is_shell_script,
    make_words,
    option_around,
    options_of_help,
    options_of_source,
    shell_command,
)

_CONFIG = re.compile(r"(?<!\$)\{config:([^{}]+)\}")
_STATES = 2  # of a flag: on, off


@dataclass(frozen=True, slots=True)
class Program:
    """A command to tune.

    Attributes:
        command: Its words, without those of `sbatch`.
        batch: The job of Slurm that it submits.
    """

    command: tuple[str, ...]
    batch: Batch = field(default_factory=lambda: Batch(()))
    job: Json | None = None
    source: str = ""

    def options(self, help_of: Callable[[Sequence[str]], str]) -> list[ScriptOption]:
        """Return options that may be tuned: those without a value in its words, and numbers in configuration files.

        Args:
            help_of: Runs a command and returns its output, if the source declares no options.
        """
        if self.job is not None:
            return options_of_job(self.job)
        script = next((word for word in self.command if word.endswith(".py") and Path(word).is_file()), "")
        found = options_of_source(text_of(script) or "") if script else []
        found = found or options_of_help(help_of([*self.command, "--help"]))
        keys = [pair for values in self._configs().values() for pair in values.items()]
        numbers = [(key, option_around(key.rpartition(".")[2], value)) for key, value in keys]
        return [
            *(option for option in found if option.flag not in self.command),
            *(replace(option, flag=key) for key, option in numbers if option is not None),
        ]

    def with_placeholders(self, parameters: Sequence[Json]) -> tuple[Program, str]:
        """Return the program with every parameter in its command, and a note if options were added on a guess.

        A parameter gets its place in a configuration file, in a script, or as an option at the end.
        """
        if self.job is not None:
            return self, ""
        line, words, left = " ".join(self.command), list(self.command), [str(one["name"]) for one in parameters]
        for path, values in self._configs().items():
            held = {name for name in left if any(key == name or key.endswith(f".{name}") for key in values)}
            left = [name for name in left if name not in held]
            if held:
                marked = f"{{config:{path}}}"
                words = [w.removesuffix(path) + marked if w.rpartition("=")[2] == path else w for w in words]
        unnamed, note = [name for name in left if f"{{{name}}}" not in line], ""
        if unnamed and (len(words) > 1 or len(words[0].split()) == 1):
            words, note = _with_options(words, unnamed, {str(one["name"]) for one in parameters if has_no_value(one)})
        return replace(self, command=tuple(words)), note

    def with_defaults(self, parameters: Sequence[Json], where: Sequence[str] = ()) -> tuple[list[Json], str]:
        """Return the parameters with their values of today, and a note about these.

        They are found in the job, in the configuration files of the command, and in the source of its script. Only
        values in the search space count, and those of parameters without a default; none if they violate a constraint.
        """
        names = [str(one["name"]) for one in parameters]
        if self.job is not None:
            found = defaults_of_job(self.job, names)
        else:
            scripts = [word for word in " ".join(self.command).split() if word.endswith(".py")]
            declared = defaults_of_source(text_of(scripts[0]) or "") if scripts else {}
            flags = {name: _flags_of(name, self.command) for name in names}
            found = {name: declared[flag] for name in names for flag in flags[name] if flag in declared}
            for path in re.findall(_CONFIG, " ".join(self.command)):
                found |= defaults_of_config(path, names)
        made = [_with_default(one, found.get(str(one["name"]))) for one in parameters]
        new = [f"{one['name']}={one['default']}" for old, one in zip(parameters, made, strict=True) if old is not one]
        if violated := _violated(made, where) if new else "":
            return list(parameters), f"the values of today, {', '.join(new)}, violate {violated}, so no trial has them"
        return made, f"the first trial has the values of today: {', '.join(new)}" if new else ""

    def first_trial(self, parameters: Sequence[Json]) -> list[str]:
        """Return the words to execute with the first value of each parameter."""
        spaces = {one["name"]: one["feasibleSpace"] for one in parameters}
        values = {name: (space.get("list") or [space.get("min")])[0] for name, space in spaces.items()}
        values = {"seed": "1", **values}
        words = [re.sub(r"\{config:([^{}]+)\}", r"\1", word) for word in executed_words(self.command)]
        words = [re.sub(r"\{([\w.-]+)\}", lambda found: str(values.get(found[1], found[0])), word) for word in words]
        return [word for word in words if word]

    def template(
        self,
        parameters: Sequence[Json],
        metrics: Metrics = Metrics(),
        *,
        timeout_seconds: int | None = None,
        in_slurm: bool = False,
        slurm: Sequence[str] = (),
    ) -> CommandTemplate:
        """Return the template of its trials.

        Args:
            parameters: As in an experiment.
            timeout_seconds: Deadline of a trial; None for the job's own.
            in_slurm: Whether trials are jobs of Slurm.
            slurm: Options of all its jobs, which take precedence over those of the script.

        Raises:
            InvalidError: The command is empty, or names an unknown parameter or a file that cannot be read.
        """
        if self.job is not None:
            return job_template(self.job, self.source, parameters, metrics, timeout_seconds=timeout_seconds)
        made = command_template(self.command, parameters, metrics, timeout_seconds=timeout_seconds, batch=self.batch)
        replaced = {option.removeprefix("--").partition("=")[0] for option in slurm}
        kept = {name: text for name, text in self.batch.options.items() if name not in replaced}
        notes = batch_notes(replace(self.batch, options=kept), counts=in_slurm)
        return replace(made, notes=(*notes, *made.notes))

    def _configs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the values by key of each configuration file that the command names."""
        return {path: values for path in map(_path_in, self.command) if (values := values_of_config(path))}


def program_of(command: Sequence[str], read_file: Callable[[str], tuple[str, str]]) -> Program:
    """Return the program of a command.

    Args:
        command: Its words; one argument with blanks is a line for the shell.
        read_file: Returns the text of a job's file and its name.

    Raises:
        InvalidError: The file holds no job, or `sbatch` would reject the command.
    """
    if file := job_file_of(command):
        text, source = read_file(file)
        return Program(tuple(command), job=read_job(text, source), source=source)
    batch = batch_of(command) or Batch(tuple(command))
    return Program(batch.command, batch)


def typed_command(words: Sequence[str], line: str) -> list[str]:
    """Return a command that was typed as words or in one line; a Python script gets its interpreter."""
    command = list(words) if len(words) > 1 else words_of_line(line)
    is_script = len(command) == 1 and command[0].endswith(".py") and " " not in command[0]
    return ["python", *command] if is_script and not os.access(command[0], os.X_OK) else command


def found_command() -> str:
    """Return a command for the only script of this directory that declares options, or for the only script."""
    scripts = sorted(Path().glob("*.py"))
    chosen = [path for path in scripts if options_of_source(text_of(path) or "")] or scripts
    return f"python {chosen[0]}" if len(chosen) == 1 else ""


def _flags_of(name: str, words: Sequence[str]) -> list[str]:
    """Return the options that a command, or else a program, takes the value of a parameter from."""
    line = re.search(rf"(?<!\S)(--?[\w.-]+)[ =]\{{{re.escape(name)}\}}", " ".join(words))
    return [line[1]] if line else [f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}"]


def _with_default(parameter: Json, value: str | None) -> Json:
    """Return a parameter with a default, if it has none and the value is one of its own."""
    if value is None or "default" in parameter:
        return parameter
    if has_no_value(parameter):
        words = parameter["feasibleSpace"]["list"]
        value = words[value != "True"] if value in ("True", "False") and len(words) == _STATES else value
    built = build_parameter(ParameterSpec.decode(parameter))
    return {**parameter, "default": value} if built is not None and built.contains(value) else parameter


def _violated(parameters: Sequence[Json], where: Sequence[str]) -> str:
    """Return the first constraint that the defaults violate; empty if none does, or one cannot be read."""
    specs = tuple(map(ParameterSpec.decode, parameters))
    point = {spec.name: spec.default for spec in specs if spec.default is not None}
    try:
        return next((one.text for one in build_constraints(tuple(where), specs) if not one.holds(point)), "")
    except InvalidError:
        return ""


def _path_in(word: str) -> str:
    return word.rpartition("=")[2].removeprefix("{config:").removesuffix("}")


def _with_options(words: list[str], names: Sequence[str], flags: set[str]) -> tuple[list[str], str]:
    """Return a command with options for parameters that it does not name, and a note if that is a guess."""
    if PurePath(words[0]).name == "make":
        return words + make_words(text_of("Makefile") or "", names), ""
    texts = [text_of(word) or "" for word in words]
    for place, (word, text) in enumerate(zip(words, texts, strict=True)):
        if text and is_shell_script(word, text):
            return shell_command(words, place, text, names), ""
    added = [word for name in names for word in ((f"--{name}",) if name not in flags else ()) + (f"{{{name}}}",)]
    if all(any(f"--{name}" in text for text in texts) for name in names):
        return words + added, ""
    note = f"`{' '.join(added)}` is added to the command; if the program takes it otherwise, write it there"
    return words + added, note
