"""From a trial's pod to the pod that also collects its metrics. Pure: no I/O.

Belongs here: which pods and containers are primary, the collector's container, the wrapping of commands.
Does not belong here: finding the trial of a pod, serving the webhook.
"""
