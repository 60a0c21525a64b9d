"""`make release`: all files that a version of kube-rdma is given away as, from one commit.

    named: a version to its commit
    version ─► identity ─► source_tree (the commit, with the version in it)
      ├─► the image of each architecture (kube_rdma_lab.build) ─► contents ─► sbom, licences, plugin
      ├─► chart: the .tgz, and the same as an OCI artefact; olm: its operator as a bundle for OLM
      └─► wheel and source archive
    all ─► checksums

Nothing here needs an account: docs/release.md says how the files are pushed.
"""
