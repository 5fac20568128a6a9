"""Slurm as the site of trials."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from typing_extensions import override

from katib.engine.runtime.clock import Clock
from katib.places.machine.admission import HostCapacity
from katib.places.machine.admission.host import of_slurm
from katib.places.machine.jobs.dependencies import PlaceMaker
from katib.places.machine.pods.images import NodeImages
from katib.places.machine.pods.records import Delays
from katib.places.machine.sites import Site, SiteSettings, SlurmOptions
from katib.places.machine.slurm.admission import NODE_ADDRESS_VARIABLE, SlurmGate
from katib.places.machine.slurm.commands import Slurm
from katib.places.machine.slurm.images import node_images
from katib.places.machine.slurm.place import SlurmPods, SlurmSettings, check_cluster
from katib.places.machine.slurm.script import HOST_FILE, GeneralOptions, checked_options, inherits_environment
from katib.places.machine.slurm.steps import ALLOCATION_VARIABLE


class SlurmSite(Site):
    """Trials are jobs of Slurm, or steps of the allocation in which this process runs."""

    is_elsewhere = True
    host_file = HOST_FILE

    def __init__(self, settings: SiteSettings) -> None:
        super().__init__(settings)
        self.address = os.environ.get(NODE_ADDRESS_VARIABLE, "")
        self._allocation = os.environ.get(ALLOCATION_VARIABLE, "")  # number of the job in which this process runs

    @cached_property
    def _slurm(self) -> tuple[Slurm, GeneralOptions]:
        given, wins = self.settings.slurm or SlurmOptions(())
        return Slurm.found(os.environ), GeneralOptions(checked_options(given, "--slurm-option"), wins)

    @cached_property
    def images(self) -> None:
        """None: images run on nodes."""

    @cached_property
    def gate(self) -> SlurmGate:
        """The check of trials by `sbatch`."""
        return SlurmGate(*self._slurm, self._allocation, self.address)

    @cached_property
    def node_images(self) -> NodeImages | None:
        """Returns the command of a node for an image; None: commands run with the files of the node."""
        return node_images(self.settings.containers, self._slurm[0], is_inside=bool(self._allocation))

    @cached_property
    def host(self) -> HostCapacity:
        """What trials may request: anything that Slurm accepts."""
        return replace(of_slurm(HostCapacity.detect()), runs_images=self.node_images is not None)

    @override
    def place(self, notes: Path, clock: Clock) -> PlaceMaker:
        slurm, options = self._slurm
        check_cluster(slurm, notes)
        settings = SlurmSettings(slurm, options, notes, Delays(), self._allocation, self.settings.on_cut_off)
        return lambda loop, steady: SlurmPods(settings, loop, steady, clock)

    @override
    def inherits(self, annotations: Mapping[str, str]) -> bool:
        return inherits_environment(annotations)

    @override
    def is_ending(self) -> bool:
        return bool(self._allocation) and self._slurm[0].is_ending(self._allocation)
