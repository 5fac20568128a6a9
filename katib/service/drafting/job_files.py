"""Trial templates from a job that was written for `kubectl apply`, with values in place of its options."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from katib.errors import InvalidError, invalid
from katib.model.job_kinds import KNOWN_KINDS, known_kind, misspelt_kind, suspend_field
from katib.model.loading import EXPERIMENTS
from katib.model.names import LAST_APPLIED
from katib.model.wording import either
from katib.model.written import read_object
from katib.service.drafting.experiments import (
    CommandTemplate,
    Json,
    Metrics,
    slug,
    trial_parameters,
    unnamed_note,
    variables_of,
    with_facts,
)
from katib.service.drafting.script_options import ScriptOption, option_around

_SUBMITTING: Final = frozenset({"apply", "create"})
_LEADING: Final = ("Master", "Launcher", "Chief")
"""Replicas that print the output, in kinds that have them."""

_KEPT: Final = ("labels", "annotations")
"""Metadata of a job that its trials get, too."""

_TRAINER_CONTAINER: Final = "node"
_OPTION: Final = re.compile(r"(--?[A-Za-z][\w.-]*)(?:=(.*))?\Z", re.DOTALL)


def job_file_of(command: Sequence[str]) -> str:
    """Return the file of `job.yaml` or `kubectl apply -f job.yaml`; empty for other commands."""
    words = command[0].split() if len(command) == 1 else list(command)
    if len(words) == 1:
        return words[0] if PurePath(words[0]).suffix in (".yaml", ".yml", ".json") else ""
    if PurePath(words[0]).name != "kubectl" or not _SUBMITTING & set(words):
        return ""
    files = [after for word, after in itertools.pairwise(words) if word in ("-f", "--filename")]
    files += [word.partition("=")[2] for word in words if word.startswith("--filename=")]
    return files[0] if files else ""


def read_job(text: str, source: str) -> Json:
    """Return the job of a file.

    Raises:
        InvalidError: It holds none, or one of an unknown kind.
    """
    job = read_object(text, source)
    if not isinstance(job, dict) or not isinstance(job.get("spec"), dict) or not isinstance(job.get("kind"), str):
        raise invalid(source, "it holds no job", f"give {either(KNOWN_KINDS)}", "job-file")
    if job.get("kind") in EXPERIMENTS:
        raise invalid(source, f"it is an {job['kind']}", f"run it with `katib run {source}`", "job-file")
    if wrong := misspelt_kind(job, source):
        raise InvalidError(wrong)
    metadata = job.get("metadata") or {}
    if not isinstance(metadata, dict) or any(not isinstance(metadata.get(key) or {}, dict) for key in _KEPT):
        raise invalid(f"{source}.metadata", "it is malformed", "write names and texts, as name: train", "job-file")
    if known_kind(job) is None:
        raise invalid(f"{source}.kind", f"{job.get('kind')!r} is no job", f"give {either(KNOWN_KINDS)}", "job-file")
    return job


def job_template(
    job: Json, source: str, parameters: Sequence[Json], metrics: Metrics, *, timeout_seconds: int | None = None
) -> CommandTemplate:
    """Return the template of trials that run a job.

    A value replaces `{name}` in any text of the job, `{trial}` and `{seed}` as well. If there is none, it replaces the
    value of an option `--name` in the words of its containers, or of a variable of that name, in capitals too.
    Otherwise it is in `KATIB_PARAM_LR`.

    Args:
        job: As `read_job` returns it.
        source: Name of its file.
        parameters: As in an experiment.
        timeout_seconds: Deadline of a trial; None for the job's own.

    Raises:
        InvalidError: Its kind has no deadline.
    """
    names = [str(parameter["name"]) for parameter in parameters]
    for parameter in parameters:
        if "" in parameter["feasibleSpace"].get("list", ()):
            name = parameter["name"]
            remedy = f"list two words in place of flag, such as -p {name}=yes,no, and write {{{name}}} in the file"
            raise invalid(f"-p {name}", "a flag that is not there would be an empty word", remedy, "job-file")
    known = with_facts(names)
    if metrics.kind != "stdout":
        known["metrics"] = metrics.mounted_path
    used: set[str] = set()
    made = _filled({name: job[name] for name in ("apiVersion", "kind", "spec") if name in job}, known, used)
    given = job.get("metadata") or {}
    metadata = {name: dict(given.get(name) or {}) for name in _KEPT}
    metadata["annotations"].pop(LAST_APPLIED, None)
    if kept := {name: _filled(values, known, used) for name, values in metadata.items() if values}:
        made["metadata"] = kept
    if timeout_seconds is not None:
        _set_deadline(made, timeout_seconds, source)
    containers, notes = list(containers_in(made)), []
    for variable, name in variables_of(names).items():
        if name in used:
            continue
        replaced = [text for container in containers for text in _put(container, name, known[name])]
        if replaced:
            notes.append(f"{name} takes the place of the value in {replaced[0]}")
            continue
        notes.append(unnamed_note(name))
        for container in containers:
            container["env"] = [*(container.get("env") or []), {"name": variable, "value": known[name]}]
    template = {
        "primaryContainerName": _primary_container(made),
        "trialParameters": trial_parameters(names, used),
        "trialSpec": made,
    }
    name = str(given.get("name") or given.get("generateName") or "")
    return CommandTemplate(template, slug(name) or slug(PurePath(source).stem) or "tune", tuple(notes))


def defaults_of_job(job: Json, names: Iterable[str]) -> dict[str, str]:
    """Return the values of parameters in the options and variables of the containers of a job, as written."""
    containers = list(containers_in(copy.deepcopy(job)))
    replaced = {name: [old for one in containers for old in _put(one, name, "")] for name in names}
    return {name: re.split("[ =]", old[0], maxsplit=1)[1] for name, old in replaced.items() if len(set(old)) == 1}


def options_of_job(job: Json) -> list[ScriptOption]:
    """Return the numeric options in the words of its containers, each with values around its own."""
    found: dict[str, ScriptOption] = {}

    def note(flag: str, value: str) -> str:
        option = option_around(flag, value)
        if option is not None:
            found.setdefault(flag, option)
        return value

    for container in containers_in(copy.deepcopy(job)):
        for words in _lines_of(container):
            _with_options(words, note)
    return list(found.values())


def _filled(value: Any, known: Mapping[str, str], used: set[str]) -> Any:
    """Return a copy with all `{name}` of known names filled; other braces belong to the job."""
    if isinstance(value, Mapping):
        return {key: _filled(inner, known, used) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, known, used) for inner in value]
    if not isinstance(value, str):
        return value

    def filled(found: re.Match[str]) -> str:
        used.add(found[1])
        return known[found[1]]

    return re.sub(rf"(?<![${{])\{{({'|'.join(map(re.escape, known))})\}}(?!\}})", filled, value)


def containers_in(node: Any) -> Iterator[Json]:
    """Yield every container of an object, and the trainer of a TrainJob, for changes in place."""
    if isinstance(node, list):
        for inner in node:
            yield from containers_in(inner)
    elif isinstance(node, dict):
        for key, inner in node.items():
            if key == "containers" and isinstance(inner, list):
                yield from (container for container in inner if isinstance(container, dict))
            elif key == "trainer" and isinstance(inner, dict):
                yield inner
            else:
                yield from containers_in(inner)


def _lines_of(container: Json) -> Iterator[list[Any]]:
    yield from (words for field in ("command", "args") if isinstance(words := container.get(field), list))


def _put(container: Json, name: str, value: str) -> Iterator[str]:
    """Put a value in place of that of an option or a variable of a container; yield the old ones."""
    plain = {name, name.replace("_", "-"), name.replace("-", "_")}
    flags = {dashes + text for text in plain for dashes in ("--", "-") if dashes == "--" or len(text) > 1}
    replaced: list[str] = []

    def put(flag: str, old: str) -> str:
        if flag not in flags:
            return old
        replaced.append(f"{flag} {old}")
        return value

    for words in _lines_of(container):
        _with_options(words, put)
    variables = {spelt for text in plain for spelt in (text, text.upper())}
    env = container.get("env")
    for variable in env if isinstance(env, list) else ():
        if isinstance(variable, dict) and variable.get("name") in variables and "value" in variable:
            replaced.append(f"{variable['name']}={variable['value']}")
            variable["value"] = value
    yield from replaced


def _with_options(words: list[Any], value_of: Callable[[str, str], str]) -> None:
    """Replace the value of each option among words, and in lines for a shell, by the result of a function."""
    for place, word in enumerate(words):
        if not isinstance(word, str):
            continue
        option = _OPTION.match(word)
        if option and option[2] is not None:
            words[place] = f"{option[1]}={value_of(option[1], option[2])}"
        elif option and place + 1 < len(words) and isinstance(after := words[place + 1], str):
            if not _OPTION.match(after):
                words[place + 1] = value_of(option[1], after)
        elif " " in word:
            words[place] = re.sub(
                r"(?<!\S)(--?[A-Za-z][\w.-]*)([= ]+)(-?[^\s;|&)-][^\s;|&)]*)",
                lambda found: found[1] + found[2] + value_of(found[1], found[3]),
                word,
            )


def _primary_container(job: Json) -> str:
    """Return the name of the first container of the leading replica, else of the first one."""
    spec = job["spec"]
    replicas = [value for key, value in spec.items() if key.endswith("ReplicaSpecs") and isinstance(value, dict)]
    leading = [specs[role] for specs in replicas for role in _LEADING if role in specs]
    found = next((container for container in containers_in([*leading, spec]) if "name" in container), None)
    return str(found["name"]) if found else _TRAINER_CONTAINER


def _set_deadline(job: Json, seconds: int, source: str) -> None:
    place = job["spec"]
    if job["kind"] in ("TrainJob", "JobSet"):
        raise invalid("--timeout", f"a {job['kind']} has no deadline", f"leave it out, or change {source}", "job-file")
    if "runPolicy" in suspend_field(job):
        place["runPolicy"] = dict(place.get("runPolicy") or {})
        place = place["runPolicy"]
    place["activeDeadlineSeconds"] = seconds
