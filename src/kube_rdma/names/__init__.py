"""Gives the RDMA addresses of pods DNS names, by EndpointSlices of Services without selector.

A name must not lead into another namespace (CVE-2021-25740), but a pod's annotation says which
addresses the pod has. Without the policies of `admission.install`, everybody who may edit the pod
may write that annotation. So an address of an IPPool gets a name only if the IPBlocks say that the
pod's node holds it. An address in a ResourceClaim's status gets a name only for the pods for which
the claim is reserved. An address of no IPPool gets no name if it is loopback or the like, a node's,
or the IP of another pod. If two pods show one address that only one can have,
the older has the name.

resources, explain, controller and cli may import it.
"""
