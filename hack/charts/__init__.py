"""The Helm chart, made from the kustomizations: nothing about an object is written twice."""
