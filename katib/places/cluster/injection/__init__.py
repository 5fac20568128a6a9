"""Transformation of a trial's pod into one that also collects its metrics. Pure: no I/O.

Belongs here: which pods and containers are primary, the collector's container, the wrapping of commands. Does not
belong here: finding the trial of a pod, serving the webhook.
"""

from __future__ import annotations

from katib.places.cluster.injection.inject import container_to_complete, inject, missing_primary_container
from katib.places.cluster.injection.settings import InjectionSettings, VolumeClaim
