"""Sites of trials: this machine, and Slurm. An engine opens one of them, and imports only that one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from katib.engine.runtime.clock import Clock
from katib.errors import TerminalError
from katib.model.loadable import Deferred, Loadable
from katib.places.machine.admission import HostCapacity
from katib.places.machine.admission.host import group_limits
from katib.places.machine.jobs.dependencies import Machine, PlaceMaker, always_inherits
from katib.places.machine.layout import Layout
from katib.places.machine.on_demand import LEASES
from katib.places.machine.pods.requests import Capacity
from katib.places.machine.processes.client import Processes
from katib.places.machine.trials.log_access import LOOPBACK_HOST

if TYPE_CHECKING:
    from katib.places.machine.containers.choice import ContainerRuntime
    from katib.places.machine.pods.images import NodeImages
    from katib.places.machine.slurm.admission import SlurmGate

NOTE_FILE: Final = "containers.json"
"""Note of the runtime of images that an engine uses."""

_CHOOSE: Final[Loadable[Callable[..., ContainerRuntime | None]]] = Loadable(
    "katib.places.machine.containers.choice:choose"
)
_KEEP_CLEAN: Final[Loadable[Callable[..., AbstractContextManager[None]]]] = Loadable(
    "katib.places.machine.containers.choice:keep_clean"
)


class SlurmOptions(NamedTuple):
    """Options of `sbatch`, such as `partition=gpu`, and whether they precede those of a template."""

    options: Sequence[str]
    wins: bool = False


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """Settings of a site.

    Attributes:
        root: The data directory.
        containers: What runs the images of trials: a word of `katib.places.machine.containers.Choice`.
        slurm: Options for Slurm; None: trials run on this machine.
        on_cut_off: Called when the allocation of Slurm ends in which this process runs.
    """

    root: Path
    containers: str = "never"
    slurm: SlurmOptions | None = None
    on_cut_off: Callable[[], None] = lambda: None


class Site:
    """This machine as the site of trials, and the base of the others.

    Attributes:
        is_elsewhere: Whether pods run on other machines than this one.
        address: Address of this machine for pods; empty if it is not known.
        host_file: File in the directory of a pod that names the machine it runs on; empty if it is this one.
    """

    is_elsewhere = False
    address = LOOPBACK_HOST
    host_file = ""

    def __init__(self, settings: SiteSettings) -> None:
        self.settings = settings

    @cached_property
    def gate(self) -> SlurmGate | None:
        """The check of an experiment's trials at the site; None if admission covers everything."""
        return None

    @cached_property
    def node_images(self) -> NodeImages | None:
        """A function that returns the command of a node for an image; None: commands run with the files of the node."""
        return None

    @cached_property
    def images(self) -> ContainerRuntime | None:
        """The runtime of the images of trials on this machine; None: they run as processes.

        Raises:
            TerminalError: It does not answer.
        """
        if self.settings.containers == "never":
            return None
        return _CHOOSE.load()(self.settings.containers, os.environ, self.settings.root)

    @cached_property
    def host(self) -> HostCapacity:
        """What trials may request."""
        images = self.images
        return replace(
            HostCapacity.detect(),
            runs_images=images is not None,
            names_pods=images is not None and images.has_names,
            limits=images.abilities.limits if images is not None else frozenset(),
        )

    @property
    def sees_machine(self) -> bool:
        """Whether programs of trials see all files and addresses of this machine."""
        return self.images is None and not self.is_elsewhere

    def place(self, notes: Path, _clock: Clock) -> PlaceMaker | None:
        """Return a function that makes the pods of the site; None: they are processes and containers of this machine.

        Args:
            notes: Directory of the notes of trials in Slurm.

        Raises:
            TerminalError: An earlier engine has left trials at another site.
        """
        if any(notes.glob("*/note")):
            cause = "trials of this data directory run as jobs of Slurm"
            raise TerminalError(f"{cause}; add --on slurm, so that they are followed or ended")
        return None

    def inherits(self, annotations: Mapping[str, str]) -> bool:
        """Return whether a pod with these annotations starts from our environment. Raises InvalidError."""
        return always_inherits(annotations)

    def cleaning(self, directory: Path, images: ContainerRuntime | None) -> AbstractContextManager[Any]:
        """Return a context that removes containers: of earlier engines on entering, of this one at its end."""
        note = directory / NOTE_FILE
        if images is None and not note.exists():
            return nullcontext()
        return _KEEP_CLEAN.load()(note, self.settings.root, images, os.environ)

    def is_ending(self) -> bool:
        """Return whether the allocation in which this process runs is about to end."""
        return False


SITES: Final[tuple[tuple[str, Loadable[type[Site]]], ...]] = (
    ("machine", Loadable("katib.places.machine.sites:Site")),
    ("slurm", Loadable("katib.places.machine.slurm_site:SlurmSite")),
)


def open_site(settings: SiteSettings) -> Site:
    return dict(SITES)["machine" if settings.slurm is None else "slurm"].load()(settings)


def open_machine(
    stack: ExitStack, site: Site, layout: Layout, processes: Processes, clock: Clock, *, leaves: Callable[[], bool]
) -> Machine:
    """Start processes, and return what trials run on: processes or images, and what may be leased.

    Args:
        stack: Ends everything.
        layout: The data directory, which this process holds.
        processes: The processes of this engine, not started.
        leaves: Returns, at the end, whether programs and their leases are left to the next engine.
    """
    images = site.images.prepared() if site.images is not None else None
    found, host = Capacity.of_machine(), site.host  # what may be leased is exactly what admission accepts
    capacity = replace(
        found,
        cpu=Decimal(str(host.cpus)),
        memory=Decimal(host.memory_bytes),
        limits=(*found.limits, *group_limits()),
        is_scheduled=site.is_elsewhere,
    )
    leases = Deferred(lambda: LEASES.load().of(os.environ, capacity, processes.hold, clock, layout.root))

    def close_leases() -> None:
        if leases.made is not None:
            leases.made.close(leaves=leaves())

    stack.callback(close_leases)  # after the last process has ended
    processes.start()
    stack.callback(lambda: processes.stop(leaves=leaves()))
    if processes.inherited is not None and processes.inherited.held:
        leases.get().take_over(processes.inherited.held)
    if images is not None:
        images = images.of_engine(processes.engine_id)
        stack.enter_context(processes.executing_last(["/bin/sh", "-c", images.removal()], images.environment))
    stack.enter_context(site.cleaning(layout.run, images))
    place = site.place(layout.slurm, clock)
    return Machine(processes, clock, capacity, images, leases, place, site.node_images, site.inherits)
