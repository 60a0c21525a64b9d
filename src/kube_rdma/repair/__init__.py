"""Taints nodes whose cards are bad, as RepairPolicies say, and clears them when they are well.

    NodeReports, measurements, cables ─► rules: evidence, budget, hysteresis ─► taint and annotation
      of the Node, Events, the status of the policy

The controller and cli may import it.
"""
