"""One pod as process groups of this machine: the work of the kubelet on a cluster.

Belongs here: containers, their environment, directories, volumes, output and exit codes. Does not belong here: which
pods a Job needs (`katib.places.machine.jobs`), starting a single process (`katib.places.machine.processes`).

`pod` and `container` live on the one `loop` thread.
"""
