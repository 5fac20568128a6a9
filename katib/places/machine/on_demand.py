"""The parts of an engine that are imported when they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from katib.model.loadable import Loadable

if TYPE_CHECKING:
    from pathlib import Path

    from katib.engine.algorithm_services.catalog import MachineSettings
    from katib.engine.controllers.retention import Retention
    from katib.engine.stores.sql.attributes import SqlAttributes
    from katib.places.machine.pods.leases import LeaseTable
    from katib.places.machine.repeating import Reruns
    from katib.places.machine.trials.checkpoints import CheckpointRetention
    from katib.places.machine.trials.facts import LocalFacts
    from katib.places.machine.trials.output import TrialOutput
    from katib.service.explaining.diagnostician import Diagnostician
    from katib.service.tuning.chosen_trials import ChosenTrials
    from katib.service.tuning.object_home import ObjectAdmission, ObjectHome
    from katib.service.tuning.offered_templates import OfferedTemplates
    from metrics_collector.uncollected import UncollectedTrials

LEASES: Final[Loadable[type[LeaseTable]]] = Loadable("katib.places.machine.pods.leases:LeaseTable")
READ_SETTINGS: Final[Loadable[Callable[[Path], MachineSettings]]] = Loadable(
    "katib.engine.algorithm_services.config:read_settings"
)
GIVEN_RULES: Final[Loadable[type[UncollectedTrials]]] = Loadable("metrics_collector.uncollected:UncollectedTrials")
CHECKPOINT_RETENTION: Final[Loadable[type[CheckpointRetention]]] = Loadable(
    "katib.places.machine.trials.checkpoints:CheckpointRetention"
)
RETENTION: Final[Loadable[type[Retention]]] = Loadable("katib.engine.controllers.retention:Retention")
OUTPUT: Final[Loadable[type[TrialOutput]]] = Loadable("katib.places.machine.trials.output:TrialOutput")
REPEATS: Final[Loadable[Callable[..., Reruns]]] = Loadable("katib.places.machine.repeating:Reruns")
EXPLAINING: Final[Loadable[type[Diagnostician]]] = Loadable("katib.service.explaining.diagnostician:Diagnostician")
FACTS: Final[Loadable[type[LocalFacts]]] = Loadable("katib.places.machine.trials.facts:LocalFacts")
CHOSEN_TRIALS: Final[Loadable[type[ChosenTrials]]] = Loadable("katib.service.tuning.chosen_trials:ChosenTrials")
OBJECT_ADMISSION: Final[Loadable[type[ObjectAdmission]]] = Loadable("katib.service.tuning.object_home:ObjectAdmission")
SERVED_OBJECTS: Final[Loadable[Callable[..., ObjectHome]]] = Loadable(
    "katib.places.machine.served_objects:served_objects"
)
ATTRIBUTES: Final[Loadable[type[SqlAttributes]]] = Loadable("katib.engine.stores.sql.attributes:SqlAttributes")
SUSPEND: Final[Loadable[Callable[..., None]]] = Loadable("katib.service.tuning.editing:suspend_experiment")
TEMPLATES: Final[Loadable[type[OfferedTemplates]]] = Loadable("katib.service.tuning.offered_templates:OfferedTemplates")
