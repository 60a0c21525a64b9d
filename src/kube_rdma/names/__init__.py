"""Gives the RDMA addresses of pods DNS names, by EndpointSlices of Services without selector.

An address counts only if the pod cannot have made it up: a name must not lead into another
namespace (CVE-2021-25740). Addresses stand in a pod's annotation. With `admission.install` only the
agent of the pod's node may write it; without, or before, everybody who may edit the pod. So an
address of an IPPool is the pod's own if the IPBlocks say that its node holds it. One that a
ResourceClaim's status has is that of the pods that reserved the claim. Any other must not be
special, of a node, or of another pod. Which pod of a node holds an address no object of the API
server says: of two pods that show one, the older has the name.

resources, explain, controller and cli may import it.
"""
