"""Evidence for two items of the Kubernetes AI conformance programme, from a cluster that runs.

    options ─► checks ─► Recorder: commands with what they printed ─► pages ─► files

Items are KARs 10 (high-performance pod-to-pod communication) and 41 (disaggregated inference) of
kubernetes-sigs/ai-conformance@af907ca; checks follow their test plans. Ids of items and words of
their status come from conformance-versions/KubernetesAIConformance-1.36.yaml.
"""
