#!/bin/sh
# Runs an experiment with kubectl on one machine. Start a server first, in another terminal:
#   katib serve
# and run this with
#   sh examples/clients/kubectl.sh
set -e
eval "$(katib kubeconfig)"

kubectl apply -f "$(dirname "$0")/experiment.yaml"
kubectl wait --for=condition=Succeeded experiment/clients --timeout=2m
kubectl get trials -l katib.kubeflow.org/experiment=clients
kubectl get experiment clients -o jsonpath='{.status.currentOptimalTrial.parameterAssignments[0].value}{"\n"}'
kubectl delete experiment clients
