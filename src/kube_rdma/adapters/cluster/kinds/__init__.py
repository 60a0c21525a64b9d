"""The kinds of objects that kube-rdma reads or writes: one file for each, with the fields in use.

What a feature asks about them stands in the files beside this folder. A kind of one feature alone
stands with its questions.
"""
