"""Options of commands that run trials; a plain run loads no others."""

from __future__ import annotations

import functools
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TextIO, TypeVar

import click
from click.core import ParameterSource

from katib.errors import invalid
from katib.model.features.listed import FEATURES
from katib.model.names import CHECKPOINTS_ANNOTATION, KEPT
from katib.service.tuning.sentences import SENTENCE, OnceEach, sentence_of

F = TypeVar("F", bound=Callable[..., Any])

BAD_INPUT = 2
"""Exit code."""

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8765
DEFAULT_SERVER = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
DEFAULT_NAMESPACE = "default"

NODE_ADDRESS = "KATIB_NODE_ADDRESS"
_VISIBLE_CARDS = "CUDA_VISIBLE_DEVICES"
_MANY_CARDS = 1024


def default_data_dir() -> Path:
    """Return the default data directory: $KATIB_HOME, else `.katib` in the current directory."""
    return Path(os.environ.get("KATIB_HOME") or ".katib")


def is_place_set() -> bool:
    """Return whether the environment names a service to use instead of a data directory."""
    return bool(os.environ.get("KATIB_CONTEXT") or os.environ.get("KATIB_SERVER"))


def has_data(directory: Path) -> bool:
    """Return whether an engine has worked in a directory. Raises ForbiddenError."""
    from katib.places.machine import Layout

    return Layout(directory).has_database()


def examples(*lines: str) -> str:
    """Return a help epilog with examples, one a line; the mark keeps click from rewrapping it."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


class HomePath(click.Path):
    """A path that may begin with `~`, which shells do not expand in `--data-dir=~/runs`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        text = os.fspath(value)
        return super().convert(os.path.expanduser(text) if text.startswith("~/") else text, param, ctx)  # noqa: PTH111


data_dir = click.option(
    "--data-dir",
    type=HomePath(file_okay=False, path_type=Path),
    help="Directory of objects, metrics and logs.  [default: $KATIB_HOME, else .katib]",
)
config = click.option(
    "--config",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Configuration: further algorithms.",
)
containers = click.option(
    "--containers",
    envvar="KATIB_CONTAINERS",
    type=click.Choice(("auto", "never", "podman", "docker", "pyxis", "apptainer")),
    help="Container runtime for the images of trials, the last two in Slurm; with never they are processes.  "
    "[env: KATIB_CONTAINERS; default: never]",
)


def _folders(context: click.Context, _option: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        name, _, folder = pair.partition("=")
        if not name or not folder:
            raise click.UsageError(f"--claim {pair}: write NAME=/folder", context)
        found[name] = str(Path(folder).expanduser().absolute())
    return found


claims = click.option(
    "--claim",
    "claim",
    multiple=True,
    metavar="NAME=FOLDER",
    callback=_folders,
    help="Directory of this machine for a persistentVolumeClaim of the file; can be repeated.",
)
_PLACE = (
    click.option(
        "--on",
        type=click.Choice(("here", "slurm")),
        default="here",
        help="Run trials on this machine, or as jobs of its Slurm cluster.  [default: here]",
    ),
    click.option(
        "--slurm-option",
        "slurm_options",
        multiple=True,
        metavar="NAME=VALUE",
        help="With --on slurm: an option of sbatch for all trials, such as partition=gpu. May be given several times.",
    ),
    click.option(
        "--address",
        envvar=NODE_ADDRESS,
        metavar="HOST",
        help="With --on slurm: address of this machine for nodes, for trials that push their metrics.",
    ),
    click.option(
        "--gpus",
        metavar="LIST",
        help="GPUs of this machine that trials may lease, such as 0,2-3.  [default: $CUDA_VISIBLE_DEVICES, else all]",
    ),
)
namespace = click.option(
    "-n",
    "--namespace",
    envvar="KATIB_NAMESPACE",
    metavar="NAME",
    help=f"Namespace of the experiment.  [default: that of the context, else {DEFAULT_NAMESPACE}]",
)
token = click.option("--token", envvar="KATIB_TOKEN", metavar="TEXT", help="The server's token.  [env: KATIB_TOKEN]")
verbose = click.option("-v", "--verbose", count=True, help="Log more; twice for everything.")
detach = click.option(
    "--detach",
    is_flag=True,
    help="Hand it to a server in the background, starting one if needed, and return.",
)


def features(function: F) -> F:
    """Add the options of all features; the command gets them as `annotations` of the experiment."""
    declared = {f"option_{n}": option for n, option in enumerate(one for f in FEATURES for one in f.options)}

    @functools.wraps(function)
    def command(*args: Any, **kwargs: Any) -> Any:
        given = {option.annotation: kwargs.pop(name) for name, option in declared.items()}
        found = {name: text if isinstance(text, str) else ", ".join(text) for name, text in given.items() if text}
        return function(*args, annotations=found, **kwargs)

    for name, one in reversed(declared.items()):
        command = click.option(one.flag, name, metavar=one.metavar, help=one.help, multiple=one.repeatable)(command)
    return command  # type: ignore[return-value]  # click calls it by its parameters


def checkpoint(function: F) -> F:
    """Add the option for checkpoint directories; the command gets it among the experiment's annotations."""

    @click.option(
        "--checkpoint",
        is_flag=True,
        help="Give each trial a directory, KATIB_CHECKPOINT_DIR, from which it continues after Ctrl-C or a crash.",
    )
    @functools.wraps(function)
    def command(*args: Any, checkpoint: bool, annotations: dict[str, str], **kwargs: Any) -> Any:
        found = {CHECKPOINTS_ANNOTATION: KEPT} if checkpoint else {}
        return function(*args, annotations={**annotations, **found}, **kwargs)

    return command  # type: ignore[return-value]  # click calls it by its parameters


quiet = click.option("-q", "--quiet", is_flag=True, help="Print the result only.")

_LOG_PACKAGES = {"mlflow": "mlflow", "tensorboard": "tensorboardX"}


def _check_logs(context: click.Context, _: click.Parameter, places: tuple[str, ...]) -> tuple[str, ...]:
    for place in places:
        package = _LOG_PACKAGES.get(place.partition(":")[0])
        if package is None:
            raise click.BadParameter(f'"{place}" is neither mlflow[:URL] nor tensorboard[:DIRECTORY]')
        if find_spec(package) is None:
            cause = f"it takes the package {package}, which is not installed"
            raise invalid("--log-to", cause, f"pip install {package}", "extra-missing")
    context.meta[_LOG_TO] = places
    return places


_LOG_TO = f"{__name__}.log_to"

log_to = click.option(
    "--log-to",
    multiple=True,
    expose_value=False,
    metavar="PLACE",
    callback=_check_logs,
    help="Write each trial that ends as a run of MLflow, mlflow or mlflow:URL, or for TensorBoard, "
    "tensorboard:DIRECTORY. May be repeated.",
)


def log_places() -> tuple[tuple[str, str], ...]:
    """Return the values of this command's `--log-to`: `mlflow` or `tensorboard`, and the place, empty if omitted."""
    context = click.get_current_context(silent=True)
    pairs = [place.partition(":")[::2] for place in (context.meta.get(_LOG_TO, ()) if context else ())]
    return tuple((form, f"http:{place}" if place.startswith("//") else place) for form, place in pairs)


def output(*forms: str) -> Callable[[F], F]:
    """Return the option `-o` with these formats."""
    return click.option("-o", "--output", "form", type=click.Choice(forms), help="Output format.")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The Kubernetes cluster to use; false if none was named.

    Attributes:
        context: Context of the kubeconfig; None: the current one.
        kubeconfig: The file; None: the usual places.
        db_manager: Address of the DB manager; empty: discovered.
    """

    context: str | None
    kubeconfig: Path | None
    db_manager: str

    def __bool__(self) -> bool:
        return self.context is not None or self.kubeconfig is not None

    def __str__(self) -> str:
        """Return the options that choose it again."""
        context = f" --context {shlex.quote(self.context)}" if self.context is not None else ""
        return context + (f" --kubeconfig {shlex.quote(str(self.kubeconfig))}" if self.kubeconfig is not None else "")


_OF_OBJECTS = re.compile(r"(?<=`)katib (?:best|budget|get|logs|metrics|pause|resume|serve|stop|trials|why)\b[^`]*")
"""Commands in sentences that need the options of a service."""


@dataclass(frozen=True, slots=True)
class Target:
    """The service and the namespace to use."""

    server: str | None
    token: str | None
    data_dir: Path | None
    namespace: str | None
    verbose: int
    cluster: Cluster

    @property
    def has_data(self) -> bool:
        """Whether an engine has worked in its data directory."""
        return has_data(self.data_dir or default_data_dir())

    @property
    def place(self) -> str:
        """The options that choose it again, each after a blank; without the namespace and the environment's."""
        if self.cluster:
            return str(self.cluster)
        if self.server is not None and self.server == os.environ.get("KATIB_SERVER"):
            return ""
        if self.server is not None:
            return f" --server {shlex.quote(self.server)}"
        return f" --data-dir {shlex.quote(str(self.data_dir))}" if self.data_dir is not None else ""

    @property
    def choice(self) -> str:
        """The options that choose it again, with the namespace if one was named."""
        return (f" -n {shlex.quote(self.namespace)}" if self.namespace is not None else "") + self.place

    def complete(self, text: str) -> str:
        """Return a text whose commands about objects choose this service again; a run's messages are complete."""
        return _OF_OBJECTS.sub(lambda found: f"{found[0]}{self.place}", text)


_CLUSTER = (
    click.option(
        "--context",
        metavar="NAME",
        help="Use the Kubernetes cluster of this context, with your own rights.  "
        "[env: KATIB_CONTEXT, not for run, tune, validate and serve]",
    ),
    click.option(
        "--kubeconfig",
        type=click.Path(dir_okay=False, exists=True, path_type=Path),
        help="Use the cluster of this kubeconfig.  [default: $KUBECONFIG, else ~/.kube/config]",
    ),
    click.option(
        "--db-manager",
        envvar="KATIB_DB_MANAGER_ADDRESS",
        metavar="HOST:PORT",
        default="",
        help="Address of the cluster's DB manager.  [default: found through the API server]",
    ),
)


def cluster(function: F) -> F:
    """Add the options that choose a cluster; the command gets them as `cluster`."""

    @functools.wraps(function)
    def command(*args: Any, context: str | None, kubeconfig: Path | None, db_manager: str, **kwargs: Any) -> Any:
        return function(*args, cluster=Cluster(context, kubeconfig, db_manager), **kwargs)

    return with_options(_CLUSTER, command)  # type: ignore[return-value]  # click calls it by its parameters


def place(function: F) -> F:
    """Add the options for the place of trials; the command gets the options of Slurm as `slurm`, None for here."""

    @functools.wraps(function)
    def command(
        *args: Any, on: str, slurm_options: tuple[str, ...], address: str | None, gpus: str | None, **kwargs: Any
    ) -> Any:
        if slurm_options and on != "slurm":
            raise click.UsageError("--slurm-option needs --on slurm", click.get_current_context())
        if on != "slurm":
            refuse_beside("trials of this machine", "address")
        elif address:
            os.environ[NODE_ADDRESS] = address  # listen address of an engine
        if gpus is not None and on == "slurm":
            words = "--gpus is for this machine; with --on slurm, request nvidia.com/gpu in the template"
            raise click.UsageError(words, click.get_current_context())
        if gpus is not None:
            os.environ[_VISIBLE_CARDS] = ",".join(_cards(gpus))  # cards that an engine leases
        return function(*args, slurm=slurm_options if on == "slurm" else None, **kwargs)

    return with_options(_PLACE, command)  # type: ignore[return-value]  # click calls it by its parameters


def _cards(text: str) -> list[str]:
    """Return the cards in a list with ranges; none if it is empty."""
    found: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        if part.isdecimal() or part.startswith(("GPU-", "MIG-")):
            found.append(part)
        elif first.isdecimal() and last.isdecimal() and int(first) <= int(last) < _MANY_CARDS:
            found += map(str, range(int(first), int(last) + 1))
        else:
            words = f'--gpus: "{part}" is not a GPU; write numbers or UUIDs as nvidia-smi -L shows them, such as 0,2-3'
            raise click.UsageError(words, click.get_current_context())
    if len(set(found)) < len(found):
        raise click.UsageError(f"--gpus: {text} has a GPU twice; name each once", click.get_current_context())
    return found


def server_meant(server: str | None) -> str | None:
    """Return the server of --server; that of the environment only if no data directory was typed."""
    return None if is_typed("data_dir") and not is_typed("server") else server


def refuse_beside(chosen: str, *names: str) -> None:
    """Refuse options that have no meaning beside the chosen one.

    Raises:
        click.UsageError: One of them was given.
    """
    for name in filter(is_typed, names):
        option = name.replace("_", "-")
        raise click.UsageError(f"--{option} has no meaning for {chosen}; leave it out", click.get_current_context())


def is_typed(name: str) -> bool:
    """Return whether an option is on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def with_options(added: tuple[Callable[[Any], Any], ...], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with options added before its own."""
    for option in reversed(added):
        function = option(function)
    return function


_ONCE = {"--restart": 0, "--retry-failed": 0, "--more": 1, "--detach": 0}
"""Options to omit when a command is repeated, and the number of values of each."""


def typed_line() -> str:
    """Return the current command as typed, to be repeated: without one-time options."""
    typed: list[str] = list(click.get_current_context().find_root().obj or ())
    end = typed.index("--") if "--" in typed else len(typed)
    kept, left_out = [], 0
    for word in typed[:end]:
        if left_out:
            left_out -= 1
        elif word in _ONCE:
            left_out = _ONCE[word]
        elif word.partition("=")[0] not in _ONCE:
            kept.append(word)
    return shlex.join(["katib", *kept, *typed[end:]])


def read_file(path: str) -> tuple[str, str]:
    """Return the text of a file, `-` being the standard input, and its name in errors.

    Raises:
        InvalidError: It cannot be read as UTF-8 text.
    """
    from katib.model.yaml_text import MAX_BYTES

    source = "standard input" if path == "-" else path
    if path.endswith(".py"):
        remedy = f"`katib tune -p NAME=LOW..HIGH --minimize METRIC -- python {path}` tunes it"
        raise invalid(path, "it is a program, not an experiment file", remedy, "file-type")
    if path.endswith(".ipynb"):
        remedy = "call katib.tune in one of its cells"
        raise invalid(path, "it is a notebook, not an experiment file", remedy, "file-type")
    try:
        with nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise invalid(source, (error.strerror or str(error)).lower(), _remedy(Path(path)), "file-unreadable") from error
    except UnicodeDecodeError as error:
        raise invalid(source, f"byte {error.start} is not UTF-8", "save it as UTF-8 text", "file-unreadable") from error
    if len(data) > MAX_BYTES:
        raise invalid(source, f"is larger than {MAX_BYTES} bytes", "give an experiment file", "file-size")
    return text, source


def _remedy(path: Path) -> str:
    """Return the command to type instead of an unreadable path."""
    from katib.doors.cli.experiment_files import next_step

    directory = path if path.is_dir() else path.parent
    if path.exists() and not path.is_dir():
        return "check the path"
    context = click.get_current_context(silent=True)
    command = context.command_path if context is not None else "katib run"
    fallback = "name the experiment file in it" if path.is_dir() else f"it was looked for in {directory.resolve()}"
    return next_step(directory, command, path.name) or fallback


_PLAIN_RECORD = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", SENTENCE})


class _KeyValueFormatter(logging.Formatter):
    """Appends the extra fields of a record as `key=value`.

    Args:
        text: Format of the start of a record.
        says_sentences: Whether a record that carries a sentence is written as that alone.
    """

    def __init__(self, text: str, *, says_sentences: bool) -> None:
        super().__init__(text)
        self._says_sentences = says_sentences

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        if self._says_sentences and (sentence := sentence_of(record)):
            return f"note: {sentence}"
        extras = [f"{key}={value}" for key, value in vars(record).items() if key not in _PLAIN_RECORD]
        first, line_break, rest = super().format(record).partition("\n")
        return " ".join((first, *extras)) + line_break + rest


_LINE = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


class _CurrentStderr(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`, so that a live table can put lines above itself."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]  # the base keeps an attribute
        """The current stream."""
        return sys.stderr


def set_up_logging(verbosity: int, *, quiet: bool = False, says_sentences: bool = False) -> None:
    """Send log records to stderr: warnings, with -v information, with -vv everything, with -q errors only.

    Args:
        verbosity: Number of -v options.
        quiet: Whether -q was given.
        says_sentences: Whether a user watches and gets sentences instead of the records that have one.
    """
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    handler = _CurrentStderr()
    handler.setFormatter(_KeyValueFormatter(_LINE, says_sentences=says_sentences))
    if says_sentences:
        handler.addFilter(OnceEach())
    logging.basicConfig(level=level, handlers=[handler], force=True)
