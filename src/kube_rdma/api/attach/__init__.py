"""Networks of pods: annotations, network definitions, CNI configurations, what pods are told."""
