"""Knows the cables: which switch port each card is plugged into, and which it should be.

reports, doctor, agent, controller and cli may import it.
"""
