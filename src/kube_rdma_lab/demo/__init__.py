"""The main job, shown: seed S2 on a lab, from the manifests to bytes that move between two pods.

`make demo`, the lab's tests and the bandwidth benchmark all run this one path.
"""
