"""Taints nodes and cards that are bad until they are well, and has new nodes measured first.

    RepairPolicies; NodeReports, measurements, cables ─► rules: evidence, budget, hysteresis
      ─► taint of the Node or DeviceTaintRule of the card, Events, the status of the policy
    new nodes ─► a BandwidthCheck for each policy ─► receipts in NodeReports, taints removed

The controller and cli may import it.
"""
