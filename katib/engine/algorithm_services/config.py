"""Services plugged in by a user: a YAML file that maps names of algorithms to commands or addresses.

    algorithms:
      - name: my-algorithm
        command: ["{python}", service.py, --port, "{port}"]
      - name: cmaes
        address: goptuna.internal:6789

An entry with the name of a built-in algorithm replaces it. Commands run in the directory of the file.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict, field_validator, model_validator

from katib.engine.algorithm_services.catalog import MachineSettings
from katib.engine.algorithm_services.plan import SUGGESTION_HEALTH, ServiceId, ServicePlan
from katib.errors import invalid
from katib.model.algorithms import AlgorithmInfo, SettingSpec
from katib.model.configuration import HOST_AND_PORT, ConfigModel, RetentionConfig, broken, read_configuration
from katib.model.quantities import parse_quantity

FEWEST_LOG_FILES = 2
"""The kubelet's minimum."""

CONTAINERS = ("auto", "never", "podman", "docker")
"""Runtimes for the images of trials on one machine."""

Quantity = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
"""YAML parses a quantity without unit as a number."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")  # becomes part of names on Kubernetes and of files here


class SettingEntry(ConfigModel):
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

    @field_validator("type")
    @classmethod
    def _known_type(cls, value: str) -> str:
        if value not in ("int", "float", "text", "bool"):
            remedy = "use int, float, text or bool"
            raise broken(f'"{value}" is no type of a setting', remedy, "config-setting-type")
        return value


class AlgorithmEntry(ConfigModel):
    """One service.

    Attributes:
        name: The `algorithmName` of experiments.
        command: Program and arguments, with placeholders `{port}` or `{address}`, and `{python}`.
        address: `host:port` or `unix:/path` of a running service, in place of a command.
        early_stopping: Whether it is an early stopping service.
        summary: One sentence for `katib algorithms`.
        settings: Declared settings, checked before the service is asked; if None, only the service checks them.
        reads_history: False if the service needs no trials, which keeps requests small.
        environment: Added to the environment of the command.
        health_service: Service name in health checks.
        start_seconds: Timeout of the start of a new process.
        call_seconds: Timeout of a call.
        sends_token: False for an early stopping service that cannot send a token, such as Katib's: then every account
            of this machine may read metrics while it is in use.
    """

    name: str
    command: tuple[str, ...] = ()
    address: str = ""
    early_stopping: bool = False
    summary: str = ""
    settings: tuple[SettingEntry, ...] | None = None
    reads_history: bool = True
    environment: dict[str, str] = Field(default_factory=dict)
    health_service: str | None = None
    start_seconds: float | None = None
    call_seconds: float | None = None
    sends_token: bool = True

    @field_validator("name")
    @classmethod
    def _usable_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise broken(
                f'"{value}" is not a name of an algorithm', "use lower case letters, digits, - and .", "config-name"
            )
        return value

    @field_validator("address")
    @classmethod
    def _usable_address(cls, value: str) -> str:
        if value and not value.removeprefix("unix:").startswith("/") and not HOST_AND_PORT.fullmatch(value):
            raise broken(f'"{value}" is not an address', "write host:port or unix:/path", "config-address")
        return value

    @field_validator("start_seconds", "call_seconds")
    @classmethod
    def _time_to_wait(cls, value: float | None) -> float | None:
        if value is not None and not 0 < value < math.inf:
            raise broken(f"{value:g} is not a time to wait", "use seconds above 0", "config-time")
        return value

    @model_validator(mode="after")
    def _one_way_to_reach_it(self) -> AlgorithmEntry:
        if bool(self.command) == bool(self.address):
            cause = "both command and address are set" if self.command else "neither command nor address is set"
            raise broken(cause, "set one of them", "config-command-or-address")
        if self.command and not any("{port}" in word or "{address}" in word for word in self.command):
            cause, remedy = "the command has no argument for its address", 'pass "{port}" or "{address}" to it'
            raise broken(cause, remedy, "config-command-listen", at="command")
        return self

    @property
    def service(self) -> ServiceId:
        return ServiceId(self.name, self.early_stopping)

    def info(self) -> AlgorithmInfo:
        settings = None if self.settings is None else tuple(SettingSpec(**dict(entry)) for entry in self.settings)
        return AlgorithmInfo(
            self.name,
            self.summary,
            settings,
            reads_history=self.reads_history,
            early_stopping=self.early_stopping,
            declares_features=False,
        )

    def plan(self, directory: Path) -> ServicePlan:
        usual = "" if self.early_stopping else SUGGESTION_HEALTH
        return ServicePlan(
            self.service,
            command=self.command,
            address=self.address,
            directory=directory,
            environment=self.environment,
            health_service=usual if self.health_service is None else self.health_service,
            start_seconds=self.start_seconds,
            call_seconds=self.call_seconds,
            sends_token=self.sends_token,
        )


class ServicesConfig(ConfigModel):
    """The whole file.

    Attributes:
        algorithms: Further algorithms.
        metrics_retention: How long the logs of completed trials are kept.
        containers: Runtime for the images of trials on one machine; empty for the command line's.
        container_log_max_size: Limit of one file of a container's output on one machine, as a quantity.
        container_log_max_files: Number of files of a container's output kept there.
    """

    algorithms: tuple[AlgorithmEntry, ...] = ()
    metrics_retention: RetentionConfig = RetentionConfig()
    containers: str = ""
    container_log_max_size: Quantity = "10Mi"
    container_log_max_files: Annotated[int, Strict()] = 5

    @field_validator("container_log_max_size")
    @classmethod
    def _usable_size(cls, value: str) -> str:
        try:
            size = parse_quantity(value)
        except ValueError:
            size = Decimal(0)
        if size < 1:
            raise broken(f'"{value}" is not a size', "write bytes above 0, such as 10Mi", "config-log-size")
        return value

    @field_validator("container_log_max_files")
    @classmethod
    def _usable_count(cls, value: int) -> int:
        if value < FEWEST_LOG_FILES:
            cause = f"{value} is too few, one is written to and one was before it"
            raise broken(cause, f"use {FEWEST_LOG_FILES} or more", "config-log-files")
        return value

    @property
    def container_log_max_bytes(self) -> int:
        """Limit of one file of a container's output."""
        return int(parse_quantity(self.container_log_max_size))

    @field_validator("containers")
    @classmethod
    def _known_containers(cls, value: str) -> str:
        if value not in ("", *CONTAINERS):
            remedy = f"use {', '.join(CONTAINERS[:-1])} or {CONTAINERS[-1]}"
            raise broken(f'"{value}" is not a way to run images', remedy, "config-containers")
        return value

    @model_validator(mode="after")
    def _each_once(self) -> ServicesConfig:
        seen: dict[ServiceId, int] = {}
        for i, entry in enumerate(self.algorithms):
            if (first := seen.setdefault(entry.service, i)) != i:
                cause = f"{entry.service} is also defined by algorithms[{first}]"
                raise broken(cause, "keep one of them", "config-duplicate", at=f"algorithms[{i}].name")
        return self

    def infos(self) -> tuple[AlgorithmInfo, ...]:
        return tuple(entry.info() for entry in self.algorithms)

    def plans(self, directory: Path) -> dict[ServiceId, ServicePlan]:
        return {entry.service: entry.plan(directory) for entry in self.algorithms}


def read_settings(path: Path) -> MachineSettings:
    """Read the file, for an engine.

    Raises:
        InvalidError: All its errors, each with the file and the field.
    """
    return settings_of(read_config(path), path.absolute().parent)


def settings_of(config: ServicesConfig, directory: Path) -> MachineSettings:
    return MachineSettings(
        infos=config.infos(),
        plans=config.plans(directory),
        containers=config.containers,
        log_max_bytes=config.container_log_max_bytes,
        log_max_files=config.container_log_max_files,
        retention=None if config.metrics_retention == RetentionConfig() else config.metrics_retention,
    )


def read_config(path: Path) -> ServicesConfig:
    """Read the file.

    Raises:
        InvalidError: All its errors, each with the file and the field.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise invalid(str(path), f"cannot be read: {error.strerror}", "check the path", "config-unreadable") from error
    return read_configuration(ServicesConfig, text, str(path))
