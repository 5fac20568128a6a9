"""Composition for one machine. Start with `engine.py`: one page that joins all parts.

Belongs here: choosing implementations and connecting them, and what only one machine has (a data directory, local
files). Does not belong here: anything that a cluster needs too. Other wings import from this page alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from katib.model.loadable import lazy_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from katib.engine.controllers.metrics import ControllerMetrics
    from katib.model.algorithms import AlgorithmCatalog
    from katib.places.machine.claims import HeldError, holder_of, in_turn
    from katib.places.machine.engine import Engine
    from katib.places.machine.layout import Layout
    from katib.places.machine.processes.remains import RECORD_FILE, is_engine_at_work
    from katib.service.tuning.service import Document, TuningService


def open_engine(
    data_dir: Path,
    config: Path | None = None,
    *,
    own_process: bool = True,
    metrics: ControllerMetrics | None = None,
    containers: str | None = None,
    orphan_seconds: float = 0.0,
    slurm: Sequence[str] | None = None,
    slurm_wins: bool = False,
) -> Engine:
    """Return an engine over a data directory, to be entered as a context manager and then started.

    Args:
        data_dir: Where everything is kept.
        config: Further algorithms.
        own_process: Whether this process only runs the engine. If so, its interpreter is set up for it, and it adopts
            what its guard leaves behind; processes of other owners are not changed.
        metrics: Counts what happens in the engine.
        containers: What runs the images of trials: `auto`, `never`, `podman` or `docker`. None: what the
            configuration says.
        orphan_seconds: How long programs of trials continue when this engine was killed or leaves them, until another
            one in the data directory continues with them; 0: they end with it.
        slurm: Options of `sbatch`, such as `partition=gpu`, where trials are to run as jobs of Slurm; None: they run on
            this machine.
        slurm_wins: Whether these options count before those of a template.
    """
    from katib.places.machine.engine import Engine
    from katib.places.machine.sites import SlurmOptions

    return Engine(
        data_dir,
        config,
        own_process=own_process,
        metrics=metrics,
        containers=containers,
        orphan_seconds=orphan_seconds,
        slurm=None if slurm is None else SlurmOptions(slurm, slurm_wins),
    )


def open_offline(data_dir: Path) -> TuningService:
    """Return a service that reads a data directory while no engine, or another process, works on it."""
    from katib.places.machine.offline import open_offline as open_

    return open_(data_dir)


def open_catalog(config: Path | None = None) -> AlgorithmCatalog:
    """Return the algorithms that are offered.

    Raises:
        InvalidError: The configuration file is wrong.
    """
    from katib.engine.algorithm_services.catalog import Catalog
    from katib.engine.algorithm_services.config import ServicesConfig, read_config

    return Catalog((ServicesConfig() if config is None else read_config(config)).infos())


def validate_document(
    document: Document,
    *,
    source: str,
    namespace: str | None = None,
    config: Path | None = None,
    containers: str | None = None,
) -> Sequence[str]:
    """Check a document without a data directory; return what would be done otherwise than on Kubernetes.

    Args:
        document: YAML or JSON.
        source: What to call it in errors.
        namespace: Where it goes, if it does not say.
        config: Further algorithms.
        containers: As for `open_engine`.

    Raises:
        InvalidError: Anything wrong with it.
    """
    import os
    from dataclasses import replace

    from katib.engine.algorithm_services.catalog import Catalog
    from katib.engine.algorithm_services.config import ServicesConfig, read_config
    from katib.places.machine.admission import HostCapacity
    from katib.places.machine.admission.host import of_slurm
    from katib.places.machine.containers import RuntimeChoice, chosen, runs_images
    from katib.places.machine.submission import LocalHome
    from katib.service.tuning.service import DEFAULT_NAMESPACE
    from katib.service.tuning.submission import Gate, StoredObjects

    settings = ServicesConfig() if config is None else read_config(config)
    choice, host = chosen(containers, settings), HostCapacity.detect()
    in_images, in_slurm = runs_images(choice, os.environ), choice in {RuntimeChoice.PYXIS, RuntimeChoice.APPTAINER}
    host = replace(of_slurm(host) if in_slurm else host, runs_images=in_images, names_pods=in_images and not in_slurm)
    gate = Gate(Catalog(settings.infos()), LocalHome(host), StoredObjects(None, knows_experiments=False))
    admitted = gate.check(document, source=source, namespace=namespace or DEFAULT_NAMESPACE)
    return () if admitted is None else admitted.notices


if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(
        __name__,
        {
            "claims": "HeldError holder_of in_turn",
            "engine": "Engine",
            "layout": "Layout",
            "processes.remains": "RECORD_FILE is_engine_at_work",
        },
    )
