"""Lets a gang of pods start only on rails that it has measured itself.

    policy of the API server: two init containers ─► controller: who measures with whom, as an
      annotation ─► kubelet: a file in the pod ─► the first container: perftest, figures in its
      termination message ─► controller: verdict on the gang ─► the second container: start, or fail

The controller and cli may import it.
"""
