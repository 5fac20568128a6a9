"""Services that a user plugs in: a YAML file that maps names of algorithms to commands or addresses.

    algorithms:
      - name: my-algorithm
        command: ["{python}", service.py, --port, "{port}"]
      - name: cmaes
        address: goptuna.internal:6789

A name that we have ourselves is replaced by the one in the file. Commands run in the directory of the file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from katib.api.algorithms import AlgorithmInfo, SettingSpec
from katib.errors import FieldError, InvalidError
from katib.services.plan import SUGGESTION_HEALTH, ServiceId, ServicePlan

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")  # becomes part of names on Kubernetes and of files here
_ADDRESS = re.compile(r"unix:/.+|[^\s:/]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")


class _Model(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class SettingEntry(_Model):
    """One declared setting; the fields are those of `SettingSpec`."""

    name: str
    type: str = "text"
    default: str = ""
    description: str = ""
    choices: tuple[str, ...] = ()
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None


class AlgorithmEntry(_Model):
    """One service.

    Attributes:
        name: The `algorithmName` of experiments.
        command: Program and arguments, with placeholders `{port}` or `{address}`, and `{python}`.
        address: `host:port` or `unix:/path` of a service that runs already; instead of a command.
        early_stopping: Whether it is an early stopping service.
        summary: One sentence for `katib algorithms`.
        settings: Declared settings, checked before the service is asked; without, the service alone checks them.
        reads_history: False when the service needs no trials: requests then stay small.
        environment: Added to the environment of the command.
        health_service: What to ask its health service about.
    """

    name: str
    command: tuple[str, ...] = ()
    address: str = ""
    early_stopping: bool = False
    summary: str = ""
    settings: tuple[SettingEntry, ...] | None = None
    reads_history: bool = True
    environment: dict[str, str] = {}
    health_service: str | None = None

    @property
    def service(self) -> ServiceId:
        """Which service this is."""
        return ServiceId(self.name, self.early_stopping)

    def info(self) -> AlgorithmInfo:
        """Return what is known of the algorithm."""
        settings = None if self.settings is None else tuple(SettingSpec(**dict(entry)) for entry in self.settings)
        return AlgorithmInfo(
            self.name,
            self.summary,
            settings,
            reads_history=self.reads_history,
            early_stopping=self.early_stopping,
        )

    def plan(self, directory: Path) -> ServicePlan:
        """Return how to get the service.

        Args:
            directory: Where its command runs.
        """
        usual = "" if self.early_stopping else SUGGESTION_HEALTH
        return ServicePlan(
            self.service,
            command=self.command,
            address=self.address,
            directory=directory,
            environment=self.environment,
            health_service=usual if self.health_service is None else self.health_service,
        )


class ServicesConfig(_Model):
    """The whole file."""

    algorithms: tuple[AlgorithmEntry, ...] = ()

    def infos(self) -> tuple[AlgorithmInfo, ...]:
        """Return what is known of the algorithms."""
        return tuple(entry.info() for entry in self.algorithms)

    def plans(self, directory: Path) -> dict[ServiceId, ServicePlan]:
        """Return how to get the services."""
        return {entry.service: entry.plan(directory) for entry in self.algorithms}


def read_config(path: Path) -> ServicesConfig:
    """Read the file.

    Raises:
        InvalidError: All that is wrong with it, each error with the file and the field.
    """
    try:
        text = path.read_text()
    except OSError as error:
        cause = f"cannot be read: {error.strerror}"
        raise InvalidError([FieldError(str(path), cause, "check the path", "config-unreadable")]) from error
    return parse_config(text, source=str(path))


def parse_config(text: str, *, source: str) -> ServicesConfig:
    """Read the text of such a file.

    Args:
        text: YAML.
        source: What to call it in errors.

    Raises:
        InvalidError: All that is wrong with it.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidError([_yaml_error(error, source)]) from error
    if content is None:
        return ServicesConfig()
    try:
        config = ServicesConfig.model_validate(content)
    except ValidationError as error:
        raise InvalidError(_shape_error(detail, source) for detail in error.errors()) from error
    errors = list(_rule_errors(config.algorithms, source))
    if errors:
        raise InvalidError(errors)
    return config


def _yaml_error(error: yaml.YAMLError, source: str) -> FieldError:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark is not None else ""
    problem = getattr(error, "problem", None) or "unreadable text"
    return FieldError(source, f"not YAML: {problem}{where}", "mend the file", "config-not-yaml")


def _shape_error(detail: Any, source: str) -> FieldError:
    location = detail["loc"]
    path = f"{source}: {_path(location)}".removesuffix(": ")
    match detail["type"]:
        case "extra_forbidden":
            return FieldError(path, "unknown field", _near_field(location), "config-unknown-field")
        case "missing":
            return FieldError(path, "missing", "set it", "config-missing-field")
        case "model_type":
            return FieldError(path, f"{detail['input']!r} is no mapping", "give fields and values", "config-type")
        case "tuple_type":
            return FieldError(path, f"{detail['input']!r} is no list", "write [one, two]", "config-type")
    cause = f"{detail['input']!r}: {detail['msg'][:1].lower()}{detail['msg'][1:]}"
    return FieldError(path, cause, "change the value", "config-type")


def _path(location: Sequence[str | int]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def _near_field(location: Sequence[str | int]) -> str:
    model: type[_Model] = ServicesConfig
    if "settings" in location[:-1]:
        model = SettingEntry
    elif len(location) > 1:
        model = AlgorithmEntry
    names = [to_camel(name) for name in model.model_fields]
    near = difflib.get_close_matches(str(location[-1]), names, n=1)
    return f"did you mean {near[0]}" if near else f"use one of {', '.join(names)}"


def _rule_errors(entries: Sequence[AlgorithmEntry], source: str) -> Iterator[FieldError]:
    seen: dict[ServiceId, int] = {}
    for i, entry in enumerate(entries):
        path = f"{source}: algorithms[{i}]"
        if not _NAME.fullmatch(entry.name):
            remedy = "use lower case letters, digits, - and ."
            yield FieldError(f"{path}.name", f'"{entry.name}" is no name of an algorithm', remedy, "config-name")
        if entry.service in seen:
            cause = f"{entry.service} is also defined by algorithms[{seen[entry.service]}]"
            yield FieldError(f"{path}.name", cause, "keep one of them", "config-duplicate")
        seen.setdefault(entry.service, i)
        yield from _reach_errors(entry, path)
        yield from _setting_errors(entry, path)


def _reach_errors(entry: AlgorithmEntry, path: str) -> Iterator[FieldError]:
    if bool(entry.command) == bool(entry.address):
        cause = "both command and address are set" if entry.command else "neither command nor address is set"
        yield FieldError(path, cause, "set one of them", "config-command-or-address")
    elif entry.command and not any("{port}" in word or "{address}" in word for word in entry.command):
        remedy = 'pass "{port}" or "{address}" to it'
        yield FieldError(f"{path}.command", "the command is not told where to listen", remedy, "config-command-listen")
    elif entry.address and not _ADDRESS.fullmatch(entry.address):
        remedy = "write host:port or unix:/path"
        yield FieldError(f"{path}.address", f'"{entry.address}" is no address', remedy, "config-address")


def _setting_errors(entry: AlgorithmEntry, path: str) -> Iterator[FieldError]:
    for i, setting in enumerate(entry.settings or ()):
        if setting.type not in ("int", "float", "text", "bool"):
            remedy = "use int, float, text or bool"
            cause = f'"{setting.type}" is no type of a setting'
            yield FieldError(f"{path}.settings[{i}].type", cause, remedy, "config-setting-type")
