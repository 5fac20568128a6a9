"""Objects and events kept by a Kubernetes API server.

Belongs here: how the protocol of `katib.engine.runtime.objects` maps onto requests. Does not belong here: what any kind
means.
"""

from katib.places.cluster.store.events import KubernetesEvents
from katib.places.cluster.store.store import KubernetesStore

__all__ = ["KubernetesEvents", "KubernetesStore"]
